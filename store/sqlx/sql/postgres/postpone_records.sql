-- Moves records out of the sweep's way until $2, each.
UPDATE idempotency_records AS record
SET due = postponed.due
FROM unnest($1::BYTEA[], $2::BIGINT[]) AS postponed (id, due)
WHERE record.id = postponed.id;
