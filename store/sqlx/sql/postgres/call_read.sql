-- A call, in the transaction that has its record.
-- $1 id; $2 label; $3 nonce.
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
    AND nonce = $3;
