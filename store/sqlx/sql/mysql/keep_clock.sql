-- Something was forgotten: the clock never reads less again.
-- Parameters: when.
INSERT INTO idempotency_clock (only_one, clock)
VALUES (1, ?)
ON DUPLICATE KEY UPDATE
    clock = GREATEST(clock, VALUES(clock));
