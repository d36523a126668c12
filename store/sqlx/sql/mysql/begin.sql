-- READ COMMITTED whatever the default: a statement that waited for a row must see it as it is then, and at REPEATABLE READ an
-- insert beside a lock on a row that is not there deadlocks. The level is of this transaction only.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
