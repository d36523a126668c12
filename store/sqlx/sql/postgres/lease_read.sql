-- One resource with the clock that it is judged by: there is a row also when nobody knows the resource.
-- $1 the time that a test gives, else NULL; $2 resource.
SELECT
    greatest(
        coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
        (SELECT clock FROM idempotency_clock)
    ) AS now,
    lease.resource,
    lease.token,
    lease.holder,
    lease.lease_until,
    lease.dead_nonces
FROM (SELECT 1) AS always
LEFT JOIN idempotency_leases AS lease
    ON lease.resource = $2;
