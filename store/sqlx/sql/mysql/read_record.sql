-- One record with the clock and the floor that it is judged by: one statement, so all three are of one moment,
-- and there is a row also when there is no record. It locks nothing and waits for nobody.
-- Parameters: the time that a test gives, else NULL; the claim's key class, if it has one; id.
SELECT
    -- No token is granted and no key judged below a time at which something was forgotten.
    CAST(GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        COALESCE((SELECT clock FROM idempotency_clock), 0)
    ) AS SIGNED) AS now,
    (SELECT MAX(floor) FROM idempotency_floors WHERE class IN (?, record.key_class)) AS floor,
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
    record.payload
FROM (SELECT 1 AS one) AS always
LEFT JOIN idempotency_records AS record
    ON record.id = ?;
