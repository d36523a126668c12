-- Writes the record of a key that had none. Error 1062 when somebody else was first; `INSERT IGNORE` would hide others too.
-- Parameters: the columns.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
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
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
);
