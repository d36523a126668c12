INSERT INTO counters (resource, value, token)
VALUES ($1, $2, $3)
ON CONFLICT (resource) DO UPDATE
SET value = excluded.value, token = excluded.token
