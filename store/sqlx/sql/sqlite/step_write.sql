-- Writes a step as it was decided, in the transaction that has its record: nobody else can have written in between.
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
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18
)
ON CONFLICT (id, label) DO UPDATE
SET
    format = excluded.format,
    request = excluded.request,
    state = excluded.state,
    since = excluded.since,
    last_call = excluded.last_call,
    nonce = excluded.nonce,
    token = excluded.token,
    deadline = excluded.deadline,
    quiet_until = excluded.quiet_until,
    window_start = excluded.window_start,
    open_calls = excluded.open_calls,
    cleared_calls = excluded.cleared_calls,
    resolved_by = excluded.resolved_by,
    resolved_why = excluded.resolved_why,
    kept = excluded.kept,
    result = excluded.result;
