-- The least token of a source where there is no fence, which nobody raises until the end of the transaction; and the
-- clock. One row always: a source whose fences are never purged has no watermark.
WITH watermark AS MATERIALIZED (
    SELECT least_token
    FROM idempotency_fence_watermarks
    WHERE source = $1
    FOR SHARE
)
SELECT
    coalesce((SELECT least_token FROM watermark), 0) AS least_token,
    floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS now;
