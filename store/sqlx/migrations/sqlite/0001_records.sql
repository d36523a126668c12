-- Version 1: records, floors, the clock.
-- All times are microseconds since 1970-01-01T00:00:00Z, all durations microseconds.

-- With a rowid on purpose: payloads are large, and a WITHOUT ROWID table keeps whole rows in the tree that is
-- ordered by id. Ids are hashes, so every claim would then rewrite a random page full of other people's payloads.
CREATE TABLE idempotency_records (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format INTEGER NOT NULL,
    -- 'in-flight', 'completed', 'in-doubt', 'released': as last written. Time may have moved it on.
    state TEXT NOT NULL,
    since INTEGER NOT NULL,
    fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 33),
    nonce BLOB NOT NULL CHECK (length(nonce) = 16),
    -- No token and no life settings on the stub that an abandoned claim leaves.
    token INTEGER,
    attempt INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    -- 'hold', 'rerun'
    recovery TEXT,
    response_window INTEGER,
    tombstone_window INTEGER,
    -- Only for time-ordered keys with an age limit.
    max_age INTEGER,
    drift INTEGER,
    key_class TEXT,
    key_time INTEGER,
    -- Nonces whose claims are refused: 16 bytes and 8 bytes of time each, big-endian.
    dead_nonces BLOB NOT NULL,
    resolved_by TEXT,
    resolved_why TEXT,
    -- When a sweep has something to do here.
    due INTEGER NOT NULL,
    status INTEGER,
    location TEXT,
    -- Last on purpose: reading the columns before it does not touch its overflow pages.
    payload BLOB
) STRICT;

-- By format first: a sweep steps over rows that it cannot read without looking at them.
CREATE INDEX idempotency_records_due ON idempotency_records (format, due);

-- At and below its class's floor, a time-ordered key is too old whatever the clock says.
CREATE TABLE idempotency_floors (
    class TEXT NOT NULL PRIMARY KEY,
    floor INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- At most one row: the latest time at which something was forgotten. The clock never reads less.
CREATE TABLE idempotency_clock (
    only INTEGER NOT NULL PRIMARY KEY CHECK (only = 1),
    clock INTEGER NOT NULL
) STRICT;

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
