-- Claims keys that nobody has: one statement, one trip, for any number of keys, of any age. Where there is a row, whatever its state, it is
-- neither written nor locked. What comes back is granted; of whatever does not come back somebody has the key, or its age does not allow it.
-- $1 the time that a test gives, else NULL; $2 the format of rows; $3 how long a row outlives its token; $4 how long to wait for
-- whoever is making a row of the same key; then a column of the claims each.
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
    asked.id,
    $2,
    'in-flight',
    judged.now,
    asked.fingerprint,
    asked.nonce,
    least(greatest(judged.now, 1), 9007199254740991),
    1,
    judged.now + asked.lease,
    asked.recovery,
    asked.response_window,
    asked.tombstone_window,
    asked.max_age,
    asked.drift,
    asked.key_class,
    asked.key_time,
    ''::BYTEA,
    -- `early` is NULL where a completion is to move it.
    least(
        greatest(
            judged.now + asked.lease + asked.tombstone_window,
            asked.key_time + asked.max_age + asked.drift,
            judged.now + $3
        ) + 1,
        judged.now + asked.early
    )
FROM (
    SELECT
        -- No token is granted and no key judged below a time at which something was forgotten.
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now,
        set_config('lock_timeout', $4, TRUE)
    -- Read once, and set before any row is made.
    OFFSET 0
) AS judged
CROSS JOIN unnest(
    $5::BYTEA[], $6::BYTEA[], $7::BYTEA[], $8::BIGINT[], $9::TEXT[], $10::BIGINT[], $11::BIGINT[], $12::BIGINT[],
    $13::BIGINT[], $14::BIGINT[], $15::TEXT[], $16::BIGINT[]
) AS asked (
    id, fingerprint, nonce, lease, recovery, response_window, tombstone_window, early,
    max_age, drift, key_class, key_time
)
-- They all are. It makes the planner expect few of them, however many there are, so that a prepared plan is not made anew for each number.
WHERE length(asked.id) = 32
    -- The age of a time-ordered key. `greatest` passes over a floor that is not there.
    AND (
        asked.key_time IS NULL
        OR asked.max_age IS NULL
        OR (
            asked.key_time > greatest(
                judged.now - asked.max_age,
                (SELECT floor FROM idempotency_floors WHERE class = asked.key_class)
            )
            AND asked.key_time <= judged.now + asked.drift
        )
    )
ON CONFLICT (id) DO NOTHING
RETURNING id AS asked, token AS granted, nonce AS granted_to;
