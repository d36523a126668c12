-- The calls of a step that began, in order.
-- Parameters: id; label.
SELECT
    number,
    token,
    begun_at,
    ended_at,
    ending,
    why,
    kept,
    result
FROM idempotency_calls
WHERE id = ?
    AND label = ?
    AND number > 0
ORDER BY number;
