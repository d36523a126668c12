-- The least token of a source where there is no fence, and the clock. One row always: a source whose fences are never
-- purged has no watermark.
SELECT
    coalesce((SELECT least_token FROM idempotency_fence_watermarks WHERE source = ?1), 0) AS least_token,
    CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now;
