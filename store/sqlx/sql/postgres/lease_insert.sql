-- Writes the row of a resource that had none. Nothing is written when somebody else was first.
INSERT INTO idempotency_leases (
    token,
    holder,
    lease_until,
    dead_nonces,
    due,
    resource
)
VALUES (
    $1, $2, $3, $4, $5, $6
)
ON CONFLICT (resource) DO NOTHING;
