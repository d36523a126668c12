BEGIN;
-- Two testbeds may begin at once.
SELECT pg_advisory_xact_lock(823911);
CREATE TABLE IF NOT EXISTS effects (
    seq      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key      TEXT,
    route    TEXT   NOT NULL,
    resource TEXT,
    amount   BIGINT NOT NULL,
    token    BIGINT,
    attempt  BIGINT,
    process  BIGINT NOT NULL,
    -- What a counter shows after it.
    value    BIGINT,
    -- Milliseconds since 1970.
    at       BIGINT NOT NULL DEFAULT floor(extract(EPOCH FROM clock_timestamp()) * 1000)::BIGINT
);
CREATE INDEX IF NOT EXISTS effects_key ON effects (key);
CREATE TABLE IF NOT EXISTS counters (
    resource TEXT   NOT NULL PRIMARY KEY,
    value    BIGINT NOT NULL,
    token    BIGINT
);
COMMIT;
