-- Locks resources that are over, longest over first. Rows that others are at are left to them: another sweeper, or somebody who
-- asks for the lease.
-- Parameters: the clock; how many.
SELECT lease.resource
-- By this index whatever the table's size: a scan of the table would lock what it looks at.
FROM idempotency_leases AS lease FORCE INDEX (idempotency_leases_due)
WHERE lease.due <= ?
ORDER BY lease.due
LIMIT ?
FOR UPDATE SKIP LOCKED;
