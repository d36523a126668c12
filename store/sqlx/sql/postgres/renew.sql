-- Renews a lease that has not ended, and never shortens it. When nothing is changed, a transaction finds out why.
-- $1 the time that a test gives, else NULL; $6 the lease.
WITH held AS MATERIALIZED (
    SELECT id
    FROM idempotency_records
    WHERE id = $2
        AND nonce = $3
        AND token = $4
        -- Not `=`, which has the planner look in the index of what is due.
        AND format IS NOT DISTINCT FROM $5
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
-- `due` stays, which may be too early: then a sweep looks and moves it on.
SET lease_until = greatest(record.lease_until, judged.now + $6)
FROM judged
WHERE record.id = judged.id
    AND record.nonce = $3
    AND record.token = $4
    AND record.state = 'in-flight'
    AND judged.now < record.lease_until;
