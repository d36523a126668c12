-- Records after one, in the order of their ids, without payloads, and the clock that they are judged by.
-- ?1 the id before the first, or an empty blob, which is below all; ?2 the time that a test gives, else NULL;
-- ?3 how many.
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
    iif(record.payload IS NULL, NULL, zeroblob(0)) AS payload
FROM idempotency_records AS record
WHERE record.id > ?1
ORDER BY record.id
LIMIT ?3;
