-- A step, in the transaction that has its record.
-- ?1 id; ?2 label.
SELECT
    step.id,
    step.label,
    step.format AS step_format,
    step.request,
    step.state AS step_state,
    step.since AS step_since,
    step.last_call,
    step.nonce AS step_nonce,
    step.token AS step_token,
    step.deadline,
    step.quiet_until,
    step.window_start,
    step.open_calls,
    step.cleared_calls,
    step.resolved_by AS step_resolved_by,
    step.resolved_why AS step_resolved_why,
    step.kept,
    step.result
FROM idempotency_steps AS step
WHERE step.id = ?1
    AND step.label = ?2;
