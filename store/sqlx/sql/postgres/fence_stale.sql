-- Takes the oldest fences of a source below a watermark, those that nobody has open.
SELECT resource
FROM idempotency_fences
WHERE source = $1
    AND token < $2
ORDER BY token
LIMIT $3
FOR UPDATE SKIP LOCKED;
