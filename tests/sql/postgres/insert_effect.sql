INSERT INTO effects (key, route, resource, amount, token, attempt, process, value)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING seq
