-- Version 1: records, floors, the clock.
-- All times are microseconds since 1970-01-01T00:00:00Z, all durations microseconds.
-- A table definition commits at once, so each may be there already: whoever migrated before was cut off, or another does it now.

CREATE TABLE IF NOT EXISTS idempotency_records (
    id BINARY(32) NOT NULL PRIMARY KEY,
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format BIGINT NOT NULL,
    -- 'in-flight', 'completed', 'in-doubt', 'released': as last written. Time may have moved it on.
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    since BIGINT NOT NULL,
    fingerprint BINARY(33) NOT NULL,
    nonce BINARY(16) NOT NULL,
    -- No token and no life settings on the stub that an abandoned claim leaves.
    token BIGINT,
    attempt BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    -- 'hold', 'rerun'
    recovery VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin,
    response_window BIGINT,
    tombstone_window BIGINT,
    -- Only for time-ordered keys with an age limit.
    max_age BIGINT,
    drift BIGINT,
    -- Bytes, in UTF-8: every collation that MySQL and MariaDB share takes 'a' and 'a ' for the same class.
    key_class VARBINARY(255),
    key_time BIGINT,
    -- Nonces whose claims are refused: 16 bytes and 8 bytes of time each, big-endian.
    dead_nonces MEDIUMBLOB NOT NULL,
    resolved_by LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    resolved_why LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- When a sweep has something to do here, or earlier: it judges the whole record and moves this on.
    due BIGINT NOT NULL,
    status BIGINT,
    location TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload LONGBLOB,
    -- By format first: a sweep steps over rows that it cannot read without looking at them.
    KEY idempotency_records_due (format, due)
) ENGINE = InnoDB;

-- At and below its class's floor, a time-ordered key is too old whatever the clock says.
CREATE TABLE IF NOT EXISTS idempotency_floors (
    class VARBINARY(255) NOT NULL PRIMARY KEY,
    floor BIGINT NOT NULL
) ENGINE = InnoDB;

-- At most one row: the latest time at which something was forgotten. The clock never reads less.
CREATE TABLE IF NOT EXISTS idempotency_clock (
    only_one TINYINT NOT NULL PRIMARY KEY CHECK (only_one = 1),
    clock BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO idempotency_migrations (version, applied_at)
VALUES (1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
