-- Forgets the steps of a record, with it or when a new life begins.
-- Parameters: id.
DELETE FROM idempotency_steps
WHERE id = ?;
