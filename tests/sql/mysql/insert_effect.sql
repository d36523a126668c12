INSERT INTO effects (`key`, route, resource, amount, token, attempt, process, value, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000))
