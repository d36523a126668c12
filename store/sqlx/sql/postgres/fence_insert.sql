-- Makes a fence. Waits for whoever makes the same one; no row is made when they commit.
INSERT INTO idempotency_fences (resource, source, token, holder, opened_at)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (resource) DO NOTHING;
