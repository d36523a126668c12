-- The response window is over: the outcome becomes a tombstone. `secure_delete` zeroes what the payload lay on.
UPDATE idempotency_records
SET
    payload = NULL,
    due = ?2
WHERE id = ?1;
