-- Forgets resources that are over, longest over first. Rows that others are at are left to them: another sweeper, or
-- somebody who asks for the lease. Each is deleted only if it is still over in its newest version.
-- $1 the time that a test gives, else NULL; $2 how many.
WITH judged AS MATERIALIZED (
    SELECT
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now
),
over AS MATERIALIZED (
    SELECT lease.resource
    FROM judged
    CROSS JOIN idempotency_leases AS lease
    WHERE lease.due <= judged.now
    ORDER BY lease.due
    LIMIT $2
    FOR UPDATE OF lease SKIP LOCKED
)
DELETE FROM idempotency_leases AS lease
USING judged, over
WHERE lease.resource = over.resource
    AND lease.due <= judged.now;
