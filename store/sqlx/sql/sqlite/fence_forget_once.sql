-- Forgets the oldest markers, those that are older than ?1 microseconds, ?2 at most.
DELETE FROM idempotency_once
WHERE id IN (
    SELECT id
    FROM idempotency_once
    WHERE done_at < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1
    ORDER BY done_at
    LIMIT ?2
);
