-- Completes what its holder still holds, in the transaction of its effect, at whatever isolation: an UPDATE sees the newest version
-- of its row. The clock of what was forgotten is given as it was when the transaction was opened, since at REPEATABLE READ and
-- above reading it here would lock it.
-- Of one table, as `complete.sql`.
-- Parameters, where T is the time that a test gives, else NULL, and C that clock: T, C, status, location, payload, T, C, whether there is a
-- payload, 1 or 0; id, nonce, token, the format that this release reads, T, C.
-- By its key: while there are few records, the index of what is due looks as good, and its gaps would be locked.
UPDATE idempotency_records FORCE INDEX (PRIMARY)
SET
    state = 'completed',
    since = GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        ?
    ),
    status = ?,
    location = ?,
    payload = ?,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on. Where it stays as it is, no index changes.
    due = LEAST(
        due,
        GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            ?
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
            ?
        ) < GREATEST(lease_until + tombstone_window, COALESCE(key_time + max_age + drift, 0))
    );
