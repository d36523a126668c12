-- Completes what its holder still holds, in the transaction of its effect, at whatever isolation: an UPDATE sees the newest version
-- of its row. The clock of what was forgotten is given as it was when the transaction was opened, since at REPEATABLE READ and
-- above reading it here would lock it.
-- Parameters: the time that a test gives, else NULL; that clock; status, location, payload; whether there is one, 1 or 0; id, nonce, token;
-- the format that this release reads.
UPDATE idempotency_records AS record
JOIN (
    SELECT
        CAST(GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            ?
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
