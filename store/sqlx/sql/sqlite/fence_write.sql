-- Writes a fence.
UPDATE idempotency_fences
SET source = ?2, token = ?3, holder = ?4, opened_at = ?5
WHERE resource = ?1;
