-- READ COMMITTED whatever the default: a statement that waited for a row must see it as it is then. And whoever stands still
-- in the middle does not hold its row for ever. All of it is of this transaction only: a proxy may give the session to
-- somebody else afterwards.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '5s';
SET LOCAL idle_in_transaction_session_timeout = '10s';
