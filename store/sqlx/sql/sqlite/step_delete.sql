-- Forgets the steps of a record, with it or when a new life begins.
-- ?1 id.
DELETE FROM idempotency_steps
WHERE id = ?1;
