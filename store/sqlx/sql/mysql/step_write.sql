-- Writes a step as it was decided, in the transaction that has its record: nobody else can have written in between.
-- Parameters: the columns.
INSERT INTO idempotency_steps (
    id,
    label,
    format,
    request,
    state,
    since,
    last_call,
    nonce,
    token,
    deadline,
    quiet_until,
    window_start,
    open_calls,
    cleared_calls,
    resolved_by,
    resolved_why,
    kept,
    result
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
ON DUPLICATE KEY UPDATE
    format = VALUES(format),
    request = VALUES(request),
    state = VALUES(state),
    since = VALUES(since),
    last_call = VALUES(last_call),
    nonce = VALUES(nonce),
    token = VALUES(token),
    deadline = VALUES(deadline),
    quiet_until = VALUES(quiet_until),
    window_start = VALUES(window_start),
    open_calls = VALUES(open_calls),
    cleared_calls = VALUES(cleared_calls),
    resolved_by = VALUES(resolved_by),
    resolved_why = VALUES(resolved_why),
    kept = VALUES(kept),
    result = VALUES(result);
