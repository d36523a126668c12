-- Forgets a resource that this transaction has locked, and only if it is over.
-- Parameters: resource; the clock.
DELETE FROM idempotency_leases
WHERE resource = ?
    AND due <= ?;
