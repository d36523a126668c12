-- Raises a source's watermark. Waits for everybody who is making a fence.
-- Parameters: to how many microseconds ago, source.
/*M!100103 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
UPDATE idempotency_fence_watermarks
SET least_token = GREATEST(least_token, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?)
WHERE source = ?;
