-- A key of a class is forgotten: from now on it and older ones are too old, whatever the clock says.
-- Parameters: the class; when the key was made.
INSERT INTO idempotency_floors (class, floor)
VALUES (?, ?)
ON DUPLICATE KEY UPDATE
    floor = GREATEST(floor, VALUES(floor));
