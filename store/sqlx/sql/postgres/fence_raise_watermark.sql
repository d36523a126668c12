-- Raises a source's watermark to $1 microseconds ago. Waits for everybody who is making a fence.
UPDATE idempotency_fence_watermarks
SET least_token = greatest(least_token, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT - $1)
WHERE source = $2;
