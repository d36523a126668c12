-- Fails when the transaction has ended since the savepoint.
RELEASE SAVEPOINT idempotency;
