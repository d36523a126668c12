-- Claims a key that nobody has and that has no limit of age: one statement, one trip, and as little as can be asked of the server.
-- Where there is a row, whatever its state, it is neither written nor locked, and nothing comes back; then it is read and judged.
-- $1 the time that a test gives, else NULL; $2 the format of rows; $3 how long a row outlives its token.
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
    dead_nonces,
    due
)
SELECT
    $4,
    $2,
    'in-flight',
    judged.now,
    $5,
    $6,
    least(greatest(judged.now, 1), 9007199254740991),
    1,
    judged.now + $7,
    $8,
    $9,
    $10,
    ''::BYTEA,
    -- $11 is NULL where a completion is to move it.
    least(greatest(judged.now + $7 + $10, judged.now + $3) + 1, judged.now + $11)
FROM (
    SELECT
        -- No token is granted below a time at which something was forgotten.
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now
    -- Read once, whoever else reads it.
    OFFSET 0
) AS judged
ON CONFLICT (id) DO NOTHING
RETURNING id AS asked, token AS granted, nonce AS granted_to;
