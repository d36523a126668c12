-- What is to be kept right. The balance is derived from the entries; when the two differ, an update was lost.
CREATE TABLE account (
    balance INTEGER NOT NULL,
    -- The token of the last write, for the act that checks it there and nowhere else.
    fencing_token INTEGER NOT NULL
) STRICT;

INSERT INTO account (balance, fencing_token)
VALUES (100, 0);

-- Every write to the balance, in the same transaction.
CREATE TABLE entry (
    id INTEGER NOT NULL PRIMARY KEY,
    -- The invoice that was charged; NULL for a deposit.
    invoice INTEGER,
    worker TEXT NOT NULL,
    amount INTEGER NOT NULL
) STRICT;

-- The naive lock: a row that says whose it is and until when, in milliseconds of the database's clock.
CREATE TABLE ttl_lock (
    resource TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
