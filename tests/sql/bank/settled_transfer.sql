SELECT id, reference, amount, key, at
FROM transfers
WHERE reference = ?1
  AND at <= CAST(unixepoch('subsec') * 1000 AS INTEGER) - ?2
ORDER BY id
LIMIT 1
