-- The timeline of the write-ahead log, as its files' names begin: it changes at once when a standby takes over, and
-- when a backup is restored. No row: the transaction that was begun is over.
SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::BIT(32)::BIGINT AS timeline
WHERE current_setting('idempotency.fenced', TRUE) = 'yes';
