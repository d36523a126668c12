-- Marks the effect of a record. No row is made when it is marked already.
INSERT INTO idempotency_once (id, done_at)
VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER))
ON CONFLICT (id) DO NOTHING;
