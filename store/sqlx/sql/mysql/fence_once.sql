-- Marks the effect of a record. Waits for whoever marks the same one; 1062 when they commit, which ends the statement
-- only.
/*M!100103 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
INSERT INTO idempotency_once (id, done_at)
VALUES (?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
