-- Records after one, in the order of their ids, without payloads, and the clock that they are judged by.
-- $1 the time that a test gives, else NULL; $2 the id before the first, or no bytes, which is below all; $3 how many.
SELECT
    greatest(
        coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
        (SELECT clock FROM idempotency_clock)
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
    CASE WHEN record.payload IS NOT NULL THEN ''::BYTEA END AS payload
FROM idempotency_records AS record
WHERE record.id > $2
    -- Others are of no record.
    AND length(record.id) = 32
ORDER BY record.id
LIMIT $3;
