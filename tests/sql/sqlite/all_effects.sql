SELECT seq, key, route, resource, amount, token, attempt, process, value, at
FROM effects
WHERE ?1 IS NULL OR route = ?1
ORDER BY seq
