-- Completes what its holder still holds: in flight or in doubt, and not yet forgotten. When nothing is changed, a transaction finds
-- out why.
-- $1 the time that a test gives, else NULL; $2 the format of rows. The time is that of the statement: read before a wait for the row, which is
-- judged as it is afterwards.
UPDATE idempotency_records AS record
SET
    state = 'completed',
    since = judged.now,
    status = $6,
    location = $7,
    payload = $8,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on. Where it stays as it is, no index changes.
    due = least(
        record.due,
        judged.now + CASE WHEN $8 IS NULL THEN record.tombstone_window ELSE record.response_window END
    )
FROM (
    SELECT
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now
    -- Read once, whoever else reads it.
    OFFSET 0
) AS judged
WHERE record.id = $3
    AND record.nonce = $4
    AND record.token = $5
    -- Not `=`, which has the planner look in the index of what is due.
    AND record.format IS NOT DISTINCT FROM $2
    AND record.state IN ('in-flight', 'in-doubt')
    AND (
        (record.state = 'in-flight' AND (judged.now < record.lease_until OR record.recovery = 'rerun'))
        OR judged.now < greatest(
            record.lease_until + record.tombstone_window,
            record.key_time + record.max_age + record.drift
        )
    )
RETURNING record.id;
