-- Version 2: leases, fences, markers. Leases belong to the store; fences and markers to the data that they guard, in
-- whose database they must be.

CREATE TABLE idempotency_leases (
    resource BYTEA NOT NULL PRIMARY KEY CHECK (length(resource) BETWEEN 1 AND 255),
    -- The last token granted; none on the stub that an abandoned request leaves.
    token BIGINT,
    -- The holder's nonce; NULL when it was released.
    holder BYTEA CHECK (length(holder) = 16),
    lease_until BIGINT NOT NULL,
    -- Nonces whose requests are refused: 16 bytes and 8 bytes of time each, big-endian.
    dead_nonces BYTEA NOT NULL,
    -- When the row may go.
    due BIGINT NOT NULL
);

CREATE INDEX idempotency_leases_due ON idempotency_leases (due);

-- The newest token that was admitted, per resource.
CREATE TABLE idempotency_fences (
    resource BYTEA NOT NULL PRIMARY KEY CHECK (length(resource) BETWEEN 1 AND 255),
    -- Where its tokens are minted: 0 here, 1 by leases, others as the program numbers them. Never mixed.
    source BIGINT NOT NULL,
    -- 0 where an operator has reset it and nobody came since.
    token BIGINT NOT NULL CHECK (token >= 0),
    -- Who holds the token; zeros when its holder is not known, and then the token is good for one transaction.
    holder BYTEA NOT NULL CHECK (length(holder) = 16),
    opened_at BIGINT NOT NULL
)
-- Every opening updates its row; room on the page keeps that out of the index.
WITH (fillfactor = 70);

CREATE INDEX idempotency_fences_token ON idempotency_fences (source, token);

-- Fences with smaller tokens may be gone, so smaller tokens are refused where there is no fence. Only for the sources
-- whose tokens are times; their rows are always there, so that whoever makes a fence can hold on to one.
CREATE TABLE idempotency_fence_watermarks (
    source BIGINT NOT NULL PRIMARY KEY,
    least_token BIGINT NOT NULL
);

INSERT INTO idempotency_fence_watermarks (source, least_token)
VALUES (0, 0), (1, 0);

-- What was done once, by record.
CREATE TABLE idempotency_once (
    id BYTEA NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    done_at BIGINT NOT NULL
);

CREATE INDEX idempotency_once_done_at ON idempotency_once (done_at);

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (2, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT);
