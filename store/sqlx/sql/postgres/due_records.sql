-- Locks records that a sweep has something to do with, longest due first, and reads them without payloads. Rows that others
-- are at are left to them: another sweeper, or somebody who begins a new life.
-- $1 the time that a test gives, else NULL; $2 the format that this release reads; $3 how many.
WITH judged AS MATERIALIZED (
    SELECT
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now
)
SELECT
    judged.now,
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
    CASE WHEN record.payload IS NOT NULL THEN ''::BYTEA END AS payload,
    (CASE WHEN EXISTS (SELECT 1 FROM idempotency_calls AS one WHERE one.id = record.id) THEN 1 ELSE 0 END)::BIGINT AS has_calls
FROM judged
CROSS JOIN idempotency_records AS record
WHERE record.format = $2
    AND record.due <= judged.now
    -- Others are of no record, and hold up no sweep.
    AND length(record.id) = 32
ORDER BY record.due
LIMIT $3
FOR UPDATE OF record SKIP LOCKED;
