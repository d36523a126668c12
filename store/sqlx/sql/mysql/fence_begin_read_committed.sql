-- The level is of this transaction only. The savepoint is gone when the transaction is: a deadlock rolls back all of
-- it, a statement that defines a table commits it, and a COMMIT afterwards says that all is well.
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION READ WRITE;
SAVEPOINT idempotency_fence;
