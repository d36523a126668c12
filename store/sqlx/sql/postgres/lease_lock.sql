-- Takes a resource's row, if there is one. A statement of its own: what reads the row next sees it and the clock as they are
-- after the wait.
SELECT 1
FROM idempotency_leases
WHERE resource = $1
FOR UPDATE;
