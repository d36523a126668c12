-- Moves a record out of the sweep's way.
-- Parameters: until when; id.
UPDATE idempotency_records
SET due = ?
WHERE id = ?;
