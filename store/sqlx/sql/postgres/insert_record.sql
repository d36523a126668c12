-- Writes the record of a key that had none. Nothing is written when somebody else was first.
INSERT INTO idempotency_records (
    id,
    format,
    state,
    since,
    fingerprint,
    nonce,
    token,
    attempt,
    lease_until,
    recovery,
    response_window,
    tombstone_window,
    max_age,
    drift,
    key_class,
    key_time,
    dead_nonces,
    resolved_by,
    resolved_why,
    due,
    status,
    location,
    payload
)
VALUES (
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23
)
ON CONFLICT (id) DO NOTHING;
