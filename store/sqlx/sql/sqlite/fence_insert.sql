-- Makes a fence.
INSERT INTO idempotency_fences (resource, source, token, holder, opened_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (resource) DO NOTHING;
