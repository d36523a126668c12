INSERT INTO transfers (reference, amount, key)
VALUES (?1, ?2, ?3)
RETURNING id, reference, amount, key, at
