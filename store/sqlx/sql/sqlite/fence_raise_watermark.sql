-- Raises a source's watermark to ?1 microseconds ago.
UPDATE idempotency_fence_watermarks
SET least_token = max(least_token, CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ?1)
WHERE source = ?2;
