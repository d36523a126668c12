-- The timeline of the write-ahead log, as its files' names begin: it changes at once when a standby takes over, and
-- when a backup is restored.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline;
