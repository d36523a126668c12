-- The response window is over: outcomes become tombstones, if they are still due at $3. They are due again at $2, each.
UPDATE idempotency_records AS record
SET
    payload = NULL,
    due = dropped.due
FROM unnest($1::BYTEA[], $2::BIGINT[]) AS dropped (id, due)
WHERE record.id = dropped.id
    AND record.state = 'completed'
    AND record.due <= $3;
