SELECT value, token
FROM counters
WHERE resource = ?1
