-- Takes a fence until the end of the transaction, and says how it stands.
SELECT
    source,
    token,
    holder,
    opened_at,
    floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS now
FROM idempotency_fences
WHERE resource = $1
FOR UPDATE;
