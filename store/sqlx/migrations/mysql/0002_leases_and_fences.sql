-- Version 2: leases, fences, markers. Leases belong to the store; fences and markers to the data that they guard, in
-- whose database they must be. A table definition commits at once, so each may be there already.

CREATE TABLE IF NOT EXISTS idempotency_leases (
    -- Bytes: a collation would merge two resources that differ in case or in trailing blanks.
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    -- The last token granted; none on the stub that an abandoned request leaves.
    token BIGINT,
    -- The holder's nonce; NULL when it was released.
    holder BINARY(16),
    lease_until BIGINT NOT NULL,
    -- Nonces whose requests are refused: 16 bytes and 8 bytes of time each, big-endian.
    dead_nonces MEDIUMBLOB NOT NULL,
    -- When the row may go.
    due BIGINT NOT NULL,
    KEY idempotency_leases_due (due)
) ENGINE = InnoDB;

-- The newest token that was admitted, per resource.
CREATE TABLE IF NOT EXISTS idempotency_fences (
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    -- Where its tokens are minted: 0 here, 1 by leases, others as the program numbers them. Never mixed.
    source BIGINT NOT NULL,
    -- 0 where an operator has reset it and nobody came since.
    token BIGINT NOT NULL CHECK (token >= 0),
    -- Who holds the token; zeros when its holder is not known, and then the token is good for one transaction.
    holder BINARY(16) NOT NULL,
    opened_at BIGINT NOT NULL,
    KEY idempotency_fences_token (source, token)
) ENGINE = InnoDB;

-- Fences with smaller tokens may be gone, so smaller tokens are refused where there is no fence. Only for the sources
-- whose tokens are times; their rows are always there, so that whoever makes a fence can hold on to one.
CREATE TABLE IF NOT EXISTS idempotency_fence_watermarks (
    source BIGINT NOT NULL PRIMARY KEY,
    least_token BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO idempotency_fence_watermarks (source, least_token)
VALUES (0, 0), (1, 0);

-- What was done once, by record.
CREATE TABLE IF NOT EXISTS idempotency_once (
    id BINARY(32) NOT NULL PRIMARY KEY,
    done_at BIGINT NOT NULL,
    KEY idempotency_once_done_at (done_at)
) ENGINE = InnoDB;

INSERT IGNORE INTO idempotency_migrations (version, applied_at)
VALUES (2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
