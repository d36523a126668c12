-- Version 3: steps, which are calls to external APIs, and the log of those calls. They belong to records and go with them.

CREATE TABLE idempotency_steps (
    -- Whose it is, and what it is called.
    id BYTEA NOT NULL CHECK (length(id) = 32),
    label BYTEA NOT NULL CHECK (length(label) BETWEEN 1 AND 64),
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format BIGINT NOT NULL,
    request BYTEA NOT NULL CHECK (length(request) = 33),
    -- 'calling', 'succeeded', 'failed', 'unknown', 'retryable': as last written. Time may have moved it on.
    state TEXT NOT NULL,
    since BIGINT NOT NULL,
    -- The last call: its number, its nonce, the token of its attempt, and when it is over.
    last_call BIGINT NOT NULL,
    nonce BYTEA NOT NULL CHECK (length(nonce) = 16),
    token BIGINT NOT NULL,
    deadline BIGINT NOT NULL,
    quiet_until BIGINT NOT NULL,
    -- When the first call began that may have been sent; NULL when none may.
    window_start BIGINT,
    -- How many calls may have happened, and up to which one somebody said that they did not.
    open_calls BIGINT NOT NULL,
    cleared_calls BIGINT NOT NULL,
    resolved_by TEXT,
    resolved_why TEXT,
    -- NULL without a result, 0 when it was too long to keep. While calling: that of an earlier call which succeeded late.
    kept BIGINT,
    result BYTEA,
    PRIMARY KEY (id, label)
);

-- Only grows: a call's end may be added, and replaced by one that is known for certain.
CREATE TABLE idempotency_calls (
    id BYTEA NOT NULL CHECK (length(id) = 32),
    label BYTEA NOT NULL CHECK (length(label) BETWEEN 1 AND 64),
    nonce BYTEA NOT NULL CHECK (length(nonce) = 16),
    -- From 1; 0 for a call that was given up before it began.
    number BIGINT NOT NULL,
    token BIGINT,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT,
    -- NULL, 'unknown', 'not-done', 'refused', 'done'
    ending TEXT,
    why TEXT,
    kept BIGINT,
    result BYTEA,
    PRIMARY KEY (id, label, nonce)
);

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (3, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT);
