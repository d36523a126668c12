-- The transaction limit, in seconds, for the statement that sets it.
-- Parameters: the limit.
SET @idempotency_transaction_limit = ?;
