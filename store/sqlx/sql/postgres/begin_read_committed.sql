-- For effects. Settings are of this transaction only: a proxy may give the session to somebody else afterwards.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL lock_timeout = '5s';
