-- Writes a resource's row as it was decided, in the transaction that has it.
-- Parameters: the columns; resource.
UPDATE idempotency_leases
SET
    token = ?,
    holder = ?,
    lease_until = ?,
    dead_nonces = ?,
    due = ?
WHERE resource = ?;
