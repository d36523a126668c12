INSERT INTO calls (reference, amount, key, fault)
VALUES (?1, ?2, ?3, ?4)
