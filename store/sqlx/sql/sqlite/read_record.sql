-- Records with the clock and the floor that each is judged by: one statement, so all is of one moment, and there is a row
-- also for a record that is not there.
-- The time that a test gives, else NULL; then, for each, its id and the claim's key class, if it has one. The program repeats the
-- line of VALUES where it reads several; parameters have no numbers, since finding one by its number takes the longer the more there are.
WITH given (time) AS (
    VALUES
    (?)
),
asked (place, id, class) AS (
    VALUES
    (0, ?, ?)
)
SELECT
    asked.place,
    -- No token is granted and no key judged below a time at which something was forgotten.
    max(
        coalesce(given.time, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), given.time, 0)
    ) AS now,
    (SELECT max(floor) FROM idempotency_floors WHERE class IN (asked.class, record.key_class)) AS floor,
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
FROM given
CROSS JOIN asked
LEFT JOIN idempotency_records AS record
    ON record.id = asked.id;
