-- Deletes a fence.
DELETE FROM idempotency_fences
WHERE resource = ?1;
