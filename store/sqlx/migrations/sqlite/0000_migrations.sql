-- Which migrations were applied, and when. Each records itself.
CREATE TABLE IF NOT EXISTS idempotency_migrations (
    version INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT;
