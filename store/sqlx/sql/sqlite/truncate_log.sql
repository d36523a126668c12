-- Moves everything into the database file and empties the write-ahead log, where what was deleted from the
-- database still lies. Gives up at once when somebody reads or writes.
PRAGMA wal_checkpoint(TRUNCATE);
