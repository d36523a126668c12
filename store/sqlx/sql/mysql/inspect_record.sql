-- One record without its payload, and the clock that it is judged by.
-- Parameters: the time that a test gives, else NULL; id.
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
    CASE WHEN record.payload IS NOT NULL THEN '' END AS payload
FROM idempotency_records AS record
WHERE record.id = ?;
