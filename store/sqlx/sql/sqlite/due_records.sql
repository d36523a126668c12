-- Records that a sweep has something to do with, longest due first, without payloads, and the clock.
-- ?1 the format that this release reads; ?2 the time that a test gives, else NULL; ?3 how many.
SELECT
    max(
        coalesce(?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), ?2, 0)
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
    EXISTS (SELECT 1 FROM idempotency_calls AS one WHERE one.id = record.id) AS has_calls
FROM idempotency_records AS record
WHERE record.format = ?1
    AND record.due <= max(
        coalesce(?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), ?2, 0)
    )
ORDER BY record.due
LIMIT ?3;
