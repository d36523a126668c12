-- Writes a resource's row as it was decided, in the transaction that read it: nobody else can have written in between.
INSERT INTO idempotency_leases (
    token,
    holder,
    lease_until,
    dead_nonces,
    due,
    resource
)
VALUES (
    ?1, ?2, ?3, ?4, ?5, ?6
)
ON CONFLICT (resource) DO UPDATE
SET
    token = excluded.token,
    holder = excluded.holder,
    lease_until = excluded.lease_until,
    dead_nonces = excluded.dead_nonces,
    due = excluded.due;
