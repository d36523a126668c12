-- Forgets resources that are over, longest over first.
-- ?1 the time that a test gives, else NULL; ?2 how many.
DELETE FROM idempotency_leases
WHERE resource IN (
    SELECT resource
    FROM idempotency_leases
    WHERE due <= max(
        coalesce(?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
        coalesce((SELECT clock FROM idempotency_clock), ?1, 0)
    )
    ORDER BY due
    LIMIT ?2
)
RETURNING 1;
