-- One resource with the clock that it is judged by: there is a row also when nobody knows the resource. It locks nothing and
-- waits for nobody.
-- Parameters: the time that a test gives, else NULL; resource.
SELECT
    CAST(GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        COALESCE((SELECT clock FROM idempotency_clock), 0)
    ) AS SIGNED) AS now,
    lease.resource,
    lease.token,
    lease.holder,
    lease.lease_until,
    lease.dead_nonces
FROM (SELECT 1 AS one) AS always
LEFT JOIN idempotency_leases AS lease
    ON lease.resource = ?;
