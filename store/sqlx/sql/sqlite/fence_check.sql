-- Fails when the transaction is not the one that was begun.
RELEASE idempotency_fence;
