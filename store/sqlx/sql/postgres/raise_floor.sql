-- A key of class $1 made at $2 is forgotten: from now on it and older ones are too old, whatever the clock says.
INSERT INTO idempotency_floors AS known (class, floor)
VALUES ($1, $2)
ON CONFLICT (class) DO UPDATE
SET floor = greatest(known.floor, excluded.floor);
