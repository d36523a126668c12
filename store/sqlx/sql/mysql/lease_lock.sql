-- Takes a resource's row, if there is one. A statement of its own: what reads the row next sees it and the clock as they are
-- after the wait, whereas this one's UTC_TIMESTAMP is of its start.
-- Waits 5 s in MariaDB; in MySQL, which reads a comment there, as long as the session does.
-- Parameters: resource.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
SELECT 1
FROM idempotency_leases
WHERE resource = ?
FOR UPDATE;
