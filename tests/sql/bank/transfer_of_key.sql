SELECT id, reference, amount, key, at
FROM transfers
WHERE key = ?1
