-- Fails with 1305 when the transaction is not the one that was begun.
RELEASE SAVEPOINT idempotency_fence;
