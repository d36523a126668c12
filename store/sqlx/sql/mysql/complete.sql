-- Completes what its holder still holds: in flight or in doubt, and not yet forgotten. When nothing is changed, a
-- transaction finds out why.
-- The clock is of the statement's start. After a wait for the row it is late by the wait, 5 s at most, which lets a completion
-- through whose record would have been forgotten meanwhile: nobody took it over, or its nonce and token were not these.
-- Runs at READ COMMITTED only: at REPEATABLE READ the select in it would lock what it reads.
-- Of one table: an update of several keeps the rows that it is to write in a table of its own, on disk, since they hold a payload. So the time is
-- named wherever it is needed, and is one for all of the statement.
-- Parameters, where T is the time that a test gives, else NULL: T, status, location, payload, T, whether there is a payload, 1 or 0; id, nonce,
-- token, the format that this release reads, T.
-- By its key: while there are few records, the index of what is due looks as good, and would be locked before the row, where others lock the row
-- first.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
UPDATE idempotency_records FORCE INDEX (PRIMARY)
SET
    state = 'completed',
    since = GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        COALESCE((SELECT clock FROM idempotency_clock), 0)
    ),
    status = ?,
    location = ?,
    payload = ?,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on. Where it stays as it is, no index changes.
    due = LEAST(
        due,
        GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            COALESCE((SELECT clock FROM idempotency_clock), 0)
        ) + IF(CAST(? AS SIGNED) = 1, response_window, tombstone_window)
    )
WHERE id = ?
    AND nonce = ?
    AND token = ?
    AND format = ?
    AND state IN ('in-flight', 'in-doubt')
    -- Under 'rerun' a lease that has ended is no doubt, and nothing is forgotten while it is in flight.
    AND (
        (state = 'in-flight' AND recovery = 'rerun')
        OR GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            COALESCE((SELECT clock FROM idempotency_clock), 0)
        ) < GREATEST(lease_until + tombstone_window, COALESCE(key_time + max_age + drift, 0))
    );
