-- Moves a record out of the sweep's way until ?2.
UPDATE idempotency_records
SET due = ?2
WHERE id = ?1;
