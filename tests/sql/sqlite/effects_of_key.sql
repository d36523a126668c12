SELECT seq, key, route, resource, amount, token, attempt, process, value, at
FROM effects
WHERE key = ?1
  AND (?2 IS NULL OR route = ?2)
ORDER BY seq
