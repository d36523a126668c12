CREATE TABLE IF NOT EXISTS transfers (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    reference TEXT    NOT NULL,
    amount    INTEGER NOT NULL,
    -- A key that was honoured stands for one transfer. Without a key every call is a new one.
    key       TEXT    UNIQUE,
    -- Milliseconds since 1970.
    at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

CREATE INDEX IF NOT EXISTS transfers_reference ON transfers (reference);

CREATE TABLE IF NOT EXISTS calls (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    reference TEXT    NOT NULL,
    amount    INTEGER NOT NULL,
    key       TEXT,
    -- What it met; null when it was answered in order.
    fault     TEXT,
    at        INTEGER NOT NULL DEFAULT (CAST(unixepoch('subsec') * 1000 AS INTEGER))
) STRICT;

CREATE INDEX IF NOT EXISTS calls_reference ON calls (reference);
