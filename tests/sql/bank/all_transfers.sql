SELECT id, reference, amount, key, at
FROM transfers
ORDER BY id
