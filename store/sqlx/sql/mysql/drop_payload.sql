-- The response window is over: an outcome becomes a tombstone, if it is still due.
-- Parameters: when it is due again; id; the clock.
UPDATE idempotency_records
SET
    payload = NULL,
    due = ?
WHERE id = ?
    AND state = 'completed'
    AND due <= ?;
