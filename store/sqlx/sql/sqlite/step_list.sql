-- Steps after one, in the order of ids and labels, without results, and with their records and the clock that they are judged by.
-- ?1 the time that a test gives, else NULL; ?2 and ?3 the id and the label before the first, or no bytes, which are below all;
-- ?4 the record, or NULL for all; ?5 how many.
SELECT
    max(
        coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), ?1, 0)
    ) AS now,
    record.id,
    record.format,
    record.state,
    record.since,
    record.fingerprint,
    record.nonce,
    record.token,
    record.attempt,
    record.lease_until,
    record.recovery,
    record.response_window,
    record.tombstone_window,
    record.max_age,
    record.drift,
    record.key_class,
    record.key_time,
    record.dead_nonces,
    record.resolved_by,
    record.resolved_why,
    record.status,
    record.location,
    -- Whether there is a payload, not which: an empty one stands for it.
    iif(record.payload IS NULL, NULL, zeroblob(0)) AS payload,
    step.label,
    step.format AS step_format,
    step.request,
    step.state AS step_state,
    step.since AS step_since,
    step.last_call,
    step.nonce AS step_nonce,
    step.token AS step_token,
    step.deadline,
    step.quiet_until,
    step.window_start,
    step.open_calls,
    step.cleared_calls,
    step.resolved_by AS step_resolved_by,
    step.resolved_why AS step_resolved_why,
    step.kept,
    iif(step.result IS NULL, NULL, zeroblob(0)) AS result
FROM idempotency_steps AS step
INNER JOIN idempotency_records AS record
    ON record.id = step.id
WHERE (step.id, step.label) > (?2, ?3)
    AND (?4 IS NULL OR step.id = ?4)
ORDER BY
    step.id,
    step.label
LIMIT ?5;
