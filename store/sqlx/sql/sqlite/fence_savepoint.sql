-- Gone when the transaction is: SQLite itself rolls one back on some errors, and a COMMIT of nothing says that all is well.
SAVEPOINT idempotency_fence;
