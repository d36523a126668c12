-- There as long as the transaction is: SQLite itself rolls one back on some errors, and an application may go on after one.
SAVEPOINT idempotency;
