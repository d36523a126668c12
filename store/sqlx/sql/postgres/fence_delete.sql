-- Deletes a fence whose row this transaction has.
DELETE FROM idempotency_fences
WHERE resource = $1;
