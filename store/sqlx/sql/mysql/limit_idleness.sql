-- Whoever stands still in the middle does not hold its rows for ever: MariaDB ends the transaction. MySQL has no such setting
-- and reads a comment. The session is of our own pool, whose other transactions only end later by it.
SET @idempotency_limited = 1 /*M!100300 , SESSION idle_transaction_timeout = @idempotency_transaction_limit */;
