-- Forgets the calls of a record, with it or when a new life begins.
-- Parameters: id.
DELETE FROM idempotency_calls
WHERE id = ?;
