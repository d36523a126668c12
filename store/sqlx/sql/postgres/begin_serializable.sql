-- For effects. Settings are of this transaction only: a proxy may give the session to somebody else afterwards.
BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE;
SET LOCAL lock_timeout = '5s';
