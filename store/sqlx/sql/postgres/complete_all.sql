-- Completes what its holders still hold: in flight or in doubt, and not yet forgotten; any number of records, and the ids of those that
-- were. For the others a transaction finds out why.
-- $1 the time that a test gives, else NULL, and read before any wait for a row; $2 the format of rows; $3 how long to wait for a row; $4 whether this must be the transaction
-- that was begun for the effect: whoever ended it by hand has no effect in this one; then a column of the completions each.
WITH judged AS MATERIALIZED (
    SELECT
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now,
        -- NULL in somebody's own transaction: as it is.
        set_config('lock_timeout', coalesce($3, current_setting('lock_timeout')), TRUE)
),
ended AS MATERIALIZED (
    SELECT ended.*
    FROM unnest($5::BYTEA[], $6::BYTEA[], $7::BIGINT[], $8::BIGINT[], $9::TEXT[], $10::BYTEA[])
        AS ended (id, nonce, token, status, location, payload)
    -- As in a claim: the planner expects few of them.
    WHERE length(ended.id) = 32
)
UPDATE idempotency_records AS record
SET
    state = 'completed',
    since = judged.now,
    status = ended.status,
    location = ended.location,
    payload = ended.payload,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on. Where it stays as it is, no index changes.
    due = least(
        record.due,
        judged.now + CASE WHEN ended.payload IS NULL THEN record.tombstone_window ELSE record.response_window END
    )
FROM ended
CROSS JOIN judged
WHERE record.id = ended.id
    AND record.nonce = ended.nonce
    AND record.token = ended.token
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
    AND (NOT $4 OR current_setting('idempotency.begun', TRUE) = 'yes')
RETURNING record.id;
