-- A call, in the transaction that has its record.
-- Parameters: id; label; nonce.
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
    AND nonce = ?;
