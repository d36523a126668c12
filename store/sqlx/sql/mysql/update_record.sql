-- Writes a record as it was decided, in the transaction that has its row.
-- Parameters: the columns after the first two; id; the format that this release reads.
-- By its key: while there are few records, the index of what is due looks as good, and would be locked before the row, where others lock the row
-- first.
UPDATE idempotency_records FORCE INDEX (PRIMARY)
SET
    state = ?,
    since = ?,
    fingerprint = ?,
    nonce = ?,
    token = ?,
    attempt = ?,
    lease_until = ?,
    recovery = ?,
    response_window = ?,
    tombstone_window = ?,
    max_age = ?,
    drift = ?,
    key_class = ?,
    key_time = ?,
    dead_nonces = ?,
    resolved_by = ?,
    resolved_why = ?,
    due = ?,
    status = ?,
    location = ?,
    payload = ?
WHERE id = ?
    -- Never over a row that this release cannot read. The reader has seen to that; this is the second lock.
    AND format = ?;
