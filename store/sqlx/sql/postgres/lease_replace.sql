-- Writes a resource's row as it was decided from a plain read, if it still is as it was read. Whoever changed it since has
-- changed one of these.
UPDATE idempotency_leases
SET
    token = $1,
    holder = $2,
    lease_until = $3,
    dead_nonces = $4,
    due = $5
WHERE resource = $6
    AND token IS NOT DISTINCT FROM $7
    AND holder IS NOT DISTINCT FROM $8
    AND lease_until = $9
    AND dead_nonces = $10;
