CREATE TABLE IF NOT EXISTS effects (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    key      TEXT,
    route    TEXT    NOT NULL,
    resource TEXT,
    amount   INTEGER NOT NULL,
    token    INTEGER,
    attempt  INTEGER,
    process  INTEGER NOT NULL,
    -- What a counter shows after it.
    value    INTEGER,
    -- Milliseconds since 1970.
    at       INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

CREATE INDEX IF NOT EXISTS effects_key ON effects (key);

CREATE TABLE IF NOT EXISTS counters (
    resource TEXT    NOT NULL PRIMARY KEY,
    value    INTEGER NOT NULL,
    token    INTEGER
) STRICT;
