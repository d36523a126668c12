-- Forgets the calls of records, with them or when a new life begins.
-- $1 ids.
DELETE FROM idempotency_calls
WHERE id = ANY ($1);
