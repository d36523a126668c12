-- Marks the effect of a record. Waits for whoever marks the same one; no row is made when they commit, and no error
-- breaks the transaction.
INSERT INTO idempotency_once (id, done_at)
VALUES ($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT)
ON CONFLICT (id) DO NOTHING;
