-- The least token of a source where there is no fence, which nobody raises until the end of the transaction; and the
-- clock. One row always: a source whose fences are never purged has no watermark. (A table that is joined to another is
-- not locked by the clause at the end.)
/*M!100103 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
SELECT
    COALESCE(
        (SELECT least_token FROM idempotency_fence_watermarks WHERE source = ? LOCK IN SHARE MODE),
        0
    ) AS least_token,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now;
