-- Sessions of our own pool. Statements that stand alone are transactions too, and whoever stands still in the middle of one
-- does not hold its row for ever: MariaDB ends it; MySQL has no such setting and reads a comment.
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET SESSION
    autocommit = 1,
    innodb_lock_wait_timeout = 5
    /*M!100300 , idle_transaction_timeout = 10 */;
