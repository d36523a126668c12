-- Forgets the calls of a record, with it or when a new life begins.
-- ?1 id.
DELETE FROM idempotency_calls
WHERE id = ?1;
