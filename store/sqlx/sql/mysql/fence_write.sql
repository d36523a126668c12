-- Writes a fence whose row this transaction has. How many rows were changed says nothing: it depends on the driver's
-- flags.
-- Parameters: resource, source, token, holder, time.
INSERT INTO idempotency_fences (resource, source, token, holder, opened_at)
VALUES (?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE
    source = VALUES(source),
    token = VALUES(token),
    holder = VALUES(holder),
    opened_at = VALUES(opened_at);
