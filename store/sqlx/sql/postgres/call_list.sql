-- The calls of a step that began, in order.
-- $1 id; $2 label.
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
WHERE id = $1
    AND label = $2
    AND number > 0
ORDER BY number;
