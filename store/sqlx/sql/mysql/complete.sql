-- Completes what its holder still holds: in flight or in doubt, and not yet forgotten. When nothing is changed, a
-- transaction finds out why.
-- The clock is of the statement's start. After a wait for the row it is late by the wait, 5 s at most, which lets a completion
-- through whose record would have been forgotten meanwhile: nobody took it over, or its nonce and token were not these.
-- Runs at READ COMMITTED only: at REPEATABLE READ the select in it would lock what it reads.
-- Parameters: the time that a test gives, else NULL; status, location, payload; whether there is one, 1 or 0; id, nonce, token;
-- the format that this release reads.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
UPDATE idempotency_records AS record
JOIN (
    SELECT
        CAST(GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            COALESCE((SELECT clock FROM idempotency_clock), 0)
        ) AS SIGNED) AS now
) AS judged
SET
    record.state = 'completed',
    record.since = judged.now,
    record.status = ?,
    record.location = ?,
    record.payload = ?,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on.
    record.due = judged.now + IF(CAST(? AS SIGNED) = 1, record.response_window, record.tombstone_window)
WHERE record.id = ?
    AND record.nonce = ?
    AND record.token = ?
    AND record.format = ?
    AND record.state IN ('in-flight', 'in-doubt')
    AND (
        (record.state = 'in-flight' AND (judged.now < record.lease_until OR record.recovery = 'rerun'))
        OR judged.now < record.lease_until + record.tombstone_window
        OR judged.now < record.key_time + record.max_age + record.drift
    );
