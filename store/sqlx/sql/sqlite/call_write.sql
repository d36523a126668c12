-- Writes a call as it was decided, in the transaction that has its record: nobody else can have written in between.
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
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11
)
ON CONFLICT (id, label, nonce) DO UPDATE
SET
    number = excluded.number,
    token = excluded.token,
    begun_at = excluded.begun_at,
    ended_at = excluded.ended_at,
    ending = excluded.ending,
    why = excluded.why,
    kept = excluded.kept,
    result = excluded.result;
