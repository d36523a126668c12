-- Makes a fence. Waits for whoever makes the same one; 1062 when they commit, which ends the statement only.
/*M!100103 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
INSERT INTO idempotency_fences (resource, source, token, holder, opened_at)
VALUES (?, ?, ?, ?, ?);
