-- Version 1: records, floors, the clock.
-- All times are microseconds since 1970-01-01T00:00:00Z, all durations microseconds.

CREATE TABLE idempotency_records (
    id BYTEA NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format BIGINT NOT NULL,
    -- 'in-flight', 'completed', 'in-doubt', 'released': as last written. Time may have moved it on.
    state TEXT NOT NULL,
    since BIGINT NOT NULL,
    fingerprint BYTEA NOT NULL CHECK (length(fingerprint) = 33),
    nonce BYTEA NOT NULL CHECK (length(nonce) = 16),
    -- No token and no life settings on the stub that an abandoned claim leaves.
    token BIGINT,
    attempt BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    -- 'hold', 'rerun'
    recovery TEXT,
    response_window BIGINT,
    tombstone_window BIGINT,
    -- Only for time-ordered keys with an age limit.
    max_age BIGINT,
    drift BIGINT,
    key_class TEXT,
    key_time BIGINT,
    -- Nonces whose claims are refused: 16 bytes and 8 bytes of time each, big-endian.
    dead_nonces BYTEA NOT NULL,
    resolved_by TEXT,
    resolved_why TEXT,
    -- When a sweep has something to do here, or earlier: it judges the whole record and moves this on.
    due BIGINT NOT NULL,
    status BIGINT,
    location TEXT,
    payload BYTEA
);

-- By format first: a sweep steps over rows that it cannot read without looking at them.
CREATE INDEX idempotency_records_due ON idempotency_records (format, due);

-- At and below its class's floor, a time-ordered key is too old whatever the clock says.
CREATE TABLE idempotency_floors (
    class TEXT NOT NULL PRIMARY KEY,
    floor BIGINT NOT NULL
);

-- At most one row: the latest time at which something was forgotten. The clock never reads less.
CREATE TABLE idempotency_clock (
    only_one BOOLEAN NOT NULL PRIMARY KEY CHECK (only_one),
    clock BIGINT NOT NULL
);

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT);
