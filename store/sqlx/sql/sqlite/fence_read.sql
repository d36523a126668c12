-- How a fence stands. The transaction has the file's write lock, so it stays so.
SELECT
    source,
    token,
    holder,
    opened_at,
    CAST(unixepoch('subsec') * 1000000 AS INTEGER) AS now
FROM idempotency_fences
WHERE resource = ?1;
