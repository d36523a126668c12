-- Completes what its holders still hold: in flight or in doubt, and not yet forgotten. One statement, and one that touches no index:
-- `due` stays as it is where it is early enough. Where nothing is changed, nothing comes back, and a transaction finds out why.
-- The time that a test gives, else NULL; the format. Then, for each, its holder and its outcome; the program repeats the line of VALUES
-- where there are several, and one of NULLs is none.
WITH given (time, format) AS (
    VALUES
    (?, ?)
),
judged AS MATERIALIZED (
    SELECT
        given.format,
        max(
            coalesce(given.time, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
            coalesce((SELECT clock FROM idempotency_clock), given.time, 0)
        ) AS now
    FROM given
),
asked (id, nonce, token, status, location, payload) AS (
    VALUES
    (?, ?, ?, ?, ?, ?)
),
-- CROSS JOIN: in this order, so that the rows are looked up by their ids.
held AS MATERIALIZED (
    SELECT
        record.rowid AS place,
        judged.now,
        asked.status,
        asked.location,
        asked.payload
    FROM judged
    CROSS JOIN asked
    CROSS JOIN idempotency_records AS record
    WHERE record.id = asked.id
        AND record.nonce = asked.nonce
        AND record.token = asked.token
        AND record.format = judged.format
        AND record.state IN ('in-flight', 'in-doubt')
        AND (
            (record.state = 'in-flight' AND (judged.now < record.lease_until OR record.recovery = 'rerun'))
            OR judged.now < max(
                record.lease_until + record.tombstone_window,
                coalesce(record.key_time + record.max_age + record.drift, 0)
            )
        )
        AND record.due <= judged.now + record.response_window
)
UPDATE idempotency_records AS record
SET
    state = 'completed',
    since = held.now,
    status = held.status,
    location = held.location,
    payload = held.payload
FROM held
WHERE record.rowid = held.place
RETURNING
    id,
    token;
