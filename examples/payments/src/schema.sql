CREATE TABLE IF NOT EXISTS account (
    id      TEXT PRIMARY KEY,
    balance INTEGER NOT NULL CHECK (balance >= 0)
) STRICT;

CREATE TABLE IF NOT EXISTS payment (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    payer  TEXT NOT NULL REFERENCES account (id),
    payee  TEXT NOT NULL REFERENCES account (id),
    amount INTEGER NOT NULL CHECK (amount > 0)
) STRICT;

INSERT OR IGNORE INTO account (id, balance)
VALUES ('alice', 1000), ('bob', 1000), ('carol', 1000);
