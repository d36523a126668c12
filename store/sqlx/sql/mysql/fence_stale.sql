-- Takes the oldest fences of a source below a watermark, those that nobody has open.
-- Parameters: source, watermark, how many at most.
SELECT resource
FROM idempotency_fences
WHERE source = ?
    AND token < ?
ORDER BY token
LIMIT ?
FOR UPDATE SKIP LOCKED;
