-- Writes nothing, and fails where nothing can be written: BEGIN IMMEDIATE succeeds there.
DELETE FROM idempotency_clock
WHERE FALSE;
