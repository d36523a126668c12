-- Writes the row of a resource that had none. Error 1062 when somebody else was first; `INSERT IGNORE` would hide others too.
-- Parameters: the columns.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
INSERT INTO idempotency_leases (
    token,
    holder,
    lease_until,
    dead_nonces,
    due,
    resource
)
VALUES (
    ?, ?, ?, ?, ?, ?
);
