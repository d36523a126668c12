-- Writes a record as it was decided, in the transaction that has its row.
UPDATE idempotency_records
SET
    state = $3,
    since = $4,
    fingerprint = $5,
    nonce = $6,
    token = $7,
    attempt = $8,
    lease_until = $9,
    recovery = $10,
    response_window = $11,
    tombstone_window = $12,
    max_age = $13,
    drift = $14,
    key_class = $15,
    key_time = $16,
    dead_nonces = $17,
    resolved_by = $18,
    resolved_why = $19,
    due = $20,
    status = $21,
    location = $22,
    payload = $23
WHERE id = $1
    -- Never over a row that this release cannot read. The reader has seen to that; this is the second lock. Not `=`, which has the
    -- planner look in the index of what is due.
    AND format IS NOT DISTINCT FROM $2;
