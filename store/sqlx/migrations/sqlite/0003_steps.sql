-- Version 3: steps, which are calls to external APIs, and the log of those calls. They belong to records and go with them.

CREATE TABLE idempotency_steps (
    -- Whose it is, and what it is called.
    id BLOB NOT NULL CHECK (length(id) = 32),
    label BLOB NOT NULL CHECK (length(label) BETWEEN 1 AND 64),
    -- How the other columns are to be read. A release refuses rows of a format that it does not know.
    format INTEGER NOT NULL,
    request BLOB NOT NULL CHECK (length(request) = 33),
    -- 'calling', 'succeeded', 'failed', 'unknown', 'retryable': as last written. Time may have moved it on.
    state TEXT NOT NULL,
    since INTEGER NOT NULL,
    -- The last call: its number, its nonce, the token of its attempt, and when it is over.
    last_call INTEGER NOT NULL,
    nonce BLOB NOT NULL CHECK (length(nonce) = 16),
    token INTEGER NOT NULL,
    deadline INTEGER NOT NULL,
    quiet_until INTEGER NOT NULL,
    -- When the first call began that may have been sent; NULL when none may.
    window_start INTEGER,
    -- How many calls may have happened, and up to which one somebody said that they did not.
    open_calls INTEGER NOT NULL,
    cleared_calls INTEGER NOT NULL,
    resolved_by TEXT,
    resolved_why TEXT,
    -- NULL without a result, 0 when it was too long to keep. While calling: that of an earlier call which succeeded late.
    kept INTEGER,
    result BLOB,
    PRIMARY KEY (id, label)
) STRICT;

-- Only grows: a call's end may be added, and replaced by one that is known for certain.
CREATE TABLE idempotency_calls (
    id BLOB NOT NULL CHECK (length(id) = 32),
    label BLOB NOT NULL CHECK (length(label) BETWEEN 1 AND 64),
    nonce BLOB NOT NULL CHECK (length(nonce) = 16),
    -- From 1; 0 for a call that was given up before it began.
    number INTEGER NOT NULL,
    token INTEGER,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER,
    -- NULL, 'unknown', 'not-done', 'refused', 'done'
    ending TEXT,
    why TEXT,
    kept INTEGER,
    result BLOB,
    PRIMARY KEY (id, label, nonce)
) STRICT;

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (3, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
