-- Completes what its holder still holds: in flight or in doubt, and not yet forgotten. When nothing is changed, a
-- transaction finds out why.
-- $1 the time that a test gives, else NULL; $9 whether this must be the transaction that was begun for the effect: whoever ended it by
-- hand has no effect in this one.
WITH held AS MATERIALIZED (
    SELECT id
    FROM idempotency_records
    WHERE id = $2
        AND nonce = $3
        AND token = $4
        AND format = $5
    FOR UPDATE
),
-- Read when the row is ours, not before the wait for it.
judged AS MATERIALIZED (
    SELECT
        held.id,
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now
    FROM held
)
UPDATE idempotency_records AS record
SET
    state = 'completed',
    since = judged.now,
    status = $6,
    location = $7,
    payload = $8,
    -- Not later than there is something to do; a sweep that comes early looks and moves it on.
    due = judged.now + CASE WHEN $8 IS NULL THEN record.tombstone_window ELSE record.response_window END
FROM judged
WHERE record.id = judged.id
    AND record.nonce = $3
    AND record.token = $4
    AND record.state IN ('in-flight', 'in-doubt')
    AND (
        (record.state = 'in-flight' AND (judged.now < record.lease_until OR record.recovery = 'rerun'))
        OR judged.now < greatest(
            record.lease_until + record.tombstone_window,
            record.key_time + record.max_age + record.drift
        )
    )
    AND (NOT $9 OR current_setting('idempotency.begun', TRUE) = 'yes');
