-- Writes a resource's row as it was decided, in the transaction that has it.
UPDATE idempotency_leases
SET
    token = $1,
    holder = $2,
    lease_until = $3,
    dead_nonces = $4,
    due = $5
WHERE resource = $6;
