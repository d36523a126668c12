SELECT seq, `key`, route, resource, amount, token, attempt, process, value, at
FROM effects
WHERE `key` = ?
  AND (? IS NULL OR route = ?)
ORDER BY seq
