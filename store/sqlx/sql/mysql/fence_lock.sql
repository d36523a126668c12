-- Takes a fence until the end of the transaction, and says how it stands. MariaDB waits 5 s; MySQL, to which the first
-- words are a comment, as long as its sessions say.
/*M!100103 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
SELECT
    source,
    token,
    holder,
    opened_at,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now
FROM idempotency_fences
WHERE resource = ?
FOR UPDATE;
