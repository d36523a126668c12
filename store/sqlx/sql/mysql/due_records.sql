-- Locks records that a sweep has something to do with, longest due first, and reads them without payloads. Rows that others
-- are at are left to them: another sweeper, or somebody who begins a new life.
-- Parameters: the format that this release reads; the clock; how many.
SELECT
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
    CAST(EXISTS (SELECT 1 FROM idempotency_calls AS one WHERE one.id = record.id) AS SIGNED) AS has_calls
-- By this index whatever the table's size: a scan of the table would lock what it looks at.
FROM idempotency_records AS record FORCE INDEX (idempotency_records_due)
WHERE record.format = ?
    AND record.due <= ?
ORDER BY record.due
LIMIT ?
FOR UPDATE SKIP LOCKED;
