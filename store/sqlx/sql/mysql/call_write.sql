-- Writes a call as it was decided, in the transaction that has its record: nobody else can have written in between.
-- Parameters: the columns.
INSERT INTO idempotency_calls (
    id,
    label,
    nonce,
    number,
    token,
    begun_at,
    ended_at,
    ending,
    why,
    kept,
    result
)
VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
ON DUPLICATE KEY UPDATE
    number = VALUES(number),
    token = VALUES(token),
    begun_at = VALUES(begun_at),
    ended_at = VALUES(ended_at),
    ending = VALUES(ending),
    why = VALUES(why),
    kept = VALUES(kept),
    result = VALUES(result);
