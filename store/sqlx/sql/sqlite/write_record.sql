-- Writes a record as it was decided, in the transaction that read it: nobody else can have written in between. The program
-- repeats the line of VALUES where it writes several.
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
VALUES
    (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE
SET
    state = excluded.state,
    since = excluded.since,
    fingerprint = excluded.fingerprint,
    nonce = excluded.nonce,
    token = excluded.token,
    attempt = excluded.attempt,
    lease_until = excluded.lease_until,
    recovery = excluded.recovery,
    response_window = excluded.response_window,
    tombstone_window = excluded.tombstone_window,
    max_age = excluded.max_age,
    drift = excluded.drift,
    key_class = excluded.key_class,
    key_time = excluded.key_time,
    dead_nonces = excluded.dead_nonces,
    resolved_by = excluded.resolved_by,
    resolved_why = excluded.resolved_why,
    due = excluded.due,
    status = excluded.status,
    location = excluded.location,
    payload = excluded.payload
-- Never over a row that this release cannot read. The reader has seen to that; this is the second lock.
WHERE idempotency_records.format = excluded.format;
