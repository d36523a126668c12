-- Opens a fence that is there. A statement that waited for the row judges it as it is then, at READ COMMITTED; above
-- that it fails with 40001 and is tried again. No row: refused, or no fence.
-- $1 resource, $2 source, $3 token, NULL to mint one; $4 holder, $5 the same if it may come again, else NULL;
-- $6 how far ahead of the clock a token may be, NULL where tokens are no times.
UPDATE idempotency_fences
SET
    token = coalesce($3, greatest(token + 1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT)),
    holder = $4,
    -- Rises with every opening, also while the clock does not.
    opened_at = greatest(opened_at + 1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT)
WHERE resource = $1
    AND source = $2
    AND (
        $3 IS NULL
        OR (token = $3 AND holder = $5)
        OR (
            token < $3
            AND ($6 IS NULL OR $3 <= floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT + $6)
        )
    )
RETURNING token, opened_at;
