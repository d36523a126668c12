-- Whoever stands still in the middle does not hold its rows for ever: the server ends the transaction after $1 milliseconds. And
-- the transaction is marked, for as long as it lasts.
SELECT
    set_config('idle_in_transaction_session_timeout', $1, TRUE),
    set_config('idempotency.begun', 'yes', TRUE);
