-- Something was forgotten at $1: the clock never reads less again.
INSERT INTO idempotency_clock AS known (only_one, clock)
VALUES (TRUE, $1)
ON CONFLICT (only_one) DO UPDATE
SET clock = greatest(known.clock, excluded.clock);
