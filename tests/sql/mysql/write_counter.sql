INSERT INTO counters (resource, value, token)
VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE value = VALUES(value), token = VALUES(token)
