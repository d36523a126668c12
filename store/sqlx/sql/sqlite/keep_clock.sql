-- Something was forgotten at ?1: the clock never reads less again.
INSERT INTO idempotency_clock (only, clock)
VALUES (1, ?1)
ON CONFLICT (only) DO UPDATE
SET clock = max(clock, excluded.clock);
