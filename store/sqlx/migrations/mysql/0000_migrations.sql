-- Which migrations were applied, and when. Each records itself, last: every definition of a table commits at once.
CREATE TABLE IF NOT EXISTS idempotency_migrations (
    version BIGINT NOT NULL PRIMARY KEY,
    applied_at BIGINT NOT NULL
) ENGINE = InnoDB;
