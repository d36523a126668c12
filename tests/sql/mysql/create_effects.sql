CREATE TABLE IF NOT EXISTS effects (
    seq      BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- Bytes: a collation would merge keys that differ in case or in trailing blanks.
    `key`    VARBINARY(512),
    route    VARBINARY(255) NOT NULL,
    resource VARBINARY(255),
    amount   BIGINT NOT NULL,
    token    BIGINT,
    attempt  BIGINT,
    process  BIGINT NOT NULL,
    -- What a counter shows after it.
    value    BIGINT,
    -- Milliseconds since 1970.
    at       BIGINT NOT NULL,
    KEY effects_key (`key`)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS counters (
    resource VARBINARY(255) NOT NULL PRIMARY KEY,
    value    BIGINT NOT NULL,
    token    BIGINT
) ENGINE = InnoDB;
