-- Forgets the oldest markers.
-- Parameters: how many microseconds they are old, how many at most.
DELETE FROM idempotency_once
WHERE done_at < TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?
ORDER BY done_at
LIMIT ?;
