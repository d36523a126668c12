-- Opens a fence that is there. No row: refused, or no fence.
-- ?1 resource, ?2 source, ?3 token, NULL to mint one; ?4 holder, ?5 the same if it may come again, else NULL;
-- ?6 how far ahead of the clock a token may be, NULL where tokens are no times.
UPDATE idempotency_fences
SET
    token = coalesce(?3, max(token + 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))),
    holder = ?4,
    -- Rises with every opening, also while the clock does not.
    opened_at = max(opened_at + 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
WHERE resource = ?1
    AND source = ?2
    AND (
        ?3 IS NULL
        OR (token = ?3 AND holder = ?5)
        OR (token < ?3 AND (?6 IS NULL OR ?3 <= CAST(unixepoch('subsec') * 1000000 AS INTEGER) + ?6))
    )
RETURNING token, opened_at;
