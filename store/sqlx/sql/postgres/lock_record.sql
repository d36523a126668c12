-- Takes the row, if there is one. A statement of its own: what reads the row next sees it, the floors and the clock as they
-- are after the wait.
SELECT 1
FROM idempotency_records
WHERE id = $1
FOR UPDATE;
