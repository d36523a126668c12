-- The clock.
-- Parameters: the time that a test gives, else NULL.
SELECT
    CAST(GREATEST(
        COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
        COALESCE((SELECT clock FROM idempotency_clock), 0)
    ) AS SIGNED) AS now;
