-- Version 3: steps, which are calls to external APIs, and the log of those calls. They belong to records and go with them.
-- A table definition commits at once, so each may be there already.

CREATE TABLE IF NOT EXISTS idempotency_steps (
    -- Whose it is, and what it is called.
    id BINARY(32) NOT NULL,
    label VARBINARY(64) NOT NULL,
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format BIGINT NOT NULL,
    request BINARY(33) NOT NULL,
    -- 'calling', 'succeeded', 'failed', 'unknown', 'retryable': as last written. Time may have moved it on.
    state VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    since BIGINT NOT NULL,
    -- The last call: its number, its nonce, the token of its attempt, and when it is over.
    last_call BIGINT NOT NULL,
    nonce BINARY(16) NOT NULL,
    token BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    quiet_until BIGINT NOT NULL,
    -- When the first call began that may have been sent; NULL when none may.
    window_start BIGINT,
    -- How many calls may have happened, and up to which one somebody said that they did not.
    open_calls BIGINT NOT NULL,
    cleared_calls BIGINT NOT NULL,
    resolved_by LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    resolved_why LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- NULL without a result, 0 when it was too long to keep. While calling: that of an earlier call which succeeded late.
    kept BIGINT,
    result MEDIUMBLOB,
    PRIMARY KEY (id, label)
) ENGINE = InnoDB;

-- Only grows: a call's end may be added, and replaced by one that is known for certain.
CREATE TABLE IF NOT EXISTS idempotency_calls (
    id BINARY(32) NOT NULL,
    label VARBINARY(64) NOT NULL,
    nonce BINARY(16) NOT NULL,
    -- From 1; 0 for a call that was given up before it began.
    number BIGINT NOT NULL,
    token BIGINT,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT,
    -- NULL, 'unknown', 'not-done', 'refused', 'done'
    ending VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin,
    why LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    kept BIGINT,
    result MEDIUMBLOB,
    PRIMARY KEY (id, label, nonce)
) ENGINE = InnoDB;

INSERT IGNORE INTO idempotency_migrations (version, applied_at)
VALUES (3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
