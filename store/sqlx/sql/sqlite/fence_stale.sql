-- The oldest fences of a source below a watermark.
SELECT resource
FROM idempotency_fences
WHERE source = ?1
    AND token < ?2
ORDER BY token
LIMIT ?3;
