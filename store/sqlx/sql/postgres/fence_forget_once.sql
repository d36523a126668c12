-- Forgets the oldest markers, those that are older than $1 microseconds, $2 at most.
DELETE FROM idempotency_once
WHERE id IN (
    SELECT id
    FROM idempotency_once
    WHERE done_at < floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT - $1
    ORDER BY done_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
);
