CREATE SEQUENCE IF NOT EXISTS order_numbers;

CREATE TABLE IF NOT EXISTS orders (
    number TEXT NOT NULL PRIMARY KEY DEFAULT 'A-' || nextval('order_numbers'),
    status TEXT NOT NULL DEFAULT 'paid' CHECK (status IN ('paid', 'processing', 'shipped')),
    -- Of the conditional UPDATE: who is at it (for people to read), the how many-eth, and since when.
    owner TEXT,
    attempt BIGINT NOT NULL DEFAULT 0,
    claimed_at TIMESTAMPTZ
);

-- The effect. A UNIQUE number would be one more line of defence, and hide what is to be seen here.
CREATE TABLE IF NOT EXISTS parcels (
    id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number TEXT NOT NULL REFERENCES orders,
    worker TEXT NOT NULL
);

CREATE SEQUENCE IF NOT EXISTS night_numbers;

-- Unlike an order, a night has no row until somebody makes it.
CREATE TABLE IF NOT EXISTS nights (
    night DATE NOT NULL PRIMARY KEY,
    status TEXT NOT NULL DEFAULT 'due' CHECK (status IN ('due', 'processing', 'closed')),
    owner TEXT,
    attempt BIGINT NOT NULL DEFAULT 0,
    claimed_at TIMESTAMPTZ
);

-- The effect.
CREATE TABLE IF NOT EXISTS closings (
    id BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    night DATE NOT NULL,
    worker TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS tasks (
    name TEXT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL DEFAULT 1,
    holder TEXT NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    done_at TIMESTAMPTZ
);
