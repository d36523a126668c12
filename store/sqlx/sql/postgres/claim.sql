-- Claims a key that nobody has: one statement, one trip. Where there is a row, whatever its state, it is neither written
-- nor locked, and nothing comes back; then it is read and judged.
-- $1 the time that a test gives, else NULL; $14 how long a row outlives its token.
WITH judged AS MATERIALIZED (
    SELECT
        -- No token is granted and no key judged below a time at which something was forgotten.
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now,
        (SELECT floor FROM idempotency_floors WHERE class = $12) AS floor
)
INSERT INTO idempotency_records (
    id,
    format,
    state,
    since,
    fingerprint,
    nonce,
    token,
    attempt,
    lease_until,
    recovery,
    response_window,
    tombstone_window,
    max_age,
    drift,
    key_class,
    key_time,
    dead_nonces,
    due
)
SELECT
    $2,
    $3,
    'in-flight',
    judged.now,
    $4,
    $5,
    least(greatest(judged.now, 1), 9007199254740991),
    1,
    judged.now + $6,
    $7,
    $8,
    $9,
    $10,
    $11,
    $12,
    $13,
    ''::BYTEA,
    greatest(judged.now + $6 + $9, $13 + $10 + $11, judged.now + $14) + 1
FROM judged
-- The age of a time-ordered key. `greatest` passes over a floor that is not there.
WHERE $13 IS NULL
    OR $10 IS NULL
    OR ($13 > greatest(judged.now - $10, judged.floor) AND $13 <= judged.now + $11)
ON CONFLICT (id) DO NOTHING
RETURNING token;
