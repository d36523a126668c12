-- Forgets the steps of records, with them or when a new life begins.
-- $1 ids.
DELETE FROM idempotency_steps
WHERE id = ANY ($1);
