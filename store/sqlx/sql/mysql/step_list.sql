-- Steps after one, in the order of ids and labels, without results, and with their records and the clock that they are judged by.
-- Parameters: the time that a test gives, else NULL; the id and the label before the first, or no bytes, which are below all; the record, or NULL for all, twice; how many.
SELECT
    CAST(GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        COALESCE((SELECT clock FROM idempotency_clock), 0)
    ) AS SIGNED) AS now,
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
    CASE WHEN record.payload IS NOT NULL THEN '' END AS payload,
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
    CASE WHEN step.result IS NOT NULL THEN '' END AS result
FROM idempotency_steps AS step
INNER JOIN idempotency_records AS record
    ON record.id = step.id
WHERE (step.id, step.label) > (?, ?)
    AND (? IS NULL OR step.id = ?)
ORDER BY
    step.id,
    step.label
LIMIT ?;
