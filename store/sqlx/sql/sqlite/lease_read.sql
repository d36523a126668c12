-- One resource with the clock that it is judged by: there is a row also when nobody knows the resource.
-- ?1 resource; ?2 the time that a test gives, else NULL.
SELECT
    max(
        coalesce(?2, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), ?2, 0)
    ) AS now,
    lease.resource,
    lease.token,
    lease.holder,
    lease.lease_until,
    lease.dead_nonces
FROM (SELECT 1)
LEFT JOIN idempotency_leases AS lease
    ON lease.resource = ?1;
