-- Claims keys that nobody has, and reads the records of those that somebody has: one statement, one trip, for any number of keys, of any age.
-- Where there is a row, whatever its state, it is neither written nor locked. A key comes back with a grant, with its record, or with
-- neither: then its age does not allow it, or its row was made after this statement began.
-- $1 the time that a test gives, else NULL; $2 the format of rows; $3 how long a row outlives its token; $4 how long to wait for
-- whoever is making a row of the same key; then a column of the claims each.
WITH judged AS MATERIALIZED (
    SELECT
        -- No token is granted and no key judged below a time at which something was forgotten.
        greatest(
            coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
            (SELECT clock FROM idempotency_clock)
        ) AS now,
        set_config('lock_timeout', $4, TRUE)
),
asked AS MATERIALIZED (
    SELECT
        claim.*,
        (SELECT floor FROM idempotency_floors WHERE class = claim.key_class) AS floor
    FROM unnest(
        $5::BYTEA[], $6::BYTEA[], $7::BYTEA[], $8::BIGINT[], $9::TEXT[], $10::BIGINT[], $11::BIGINT[], $12::BIGINT[],
        $13::BIGINT[], $14::BIGINT[], $15::TEXT[], $16::BIGINT[]
    ) AS claim (
        id, fingerprint, nonce, lease, recovery, response_window, tombstone_window, early,
        max_age, drift, key_class, key_time
    )
    -- They all are. It makes the planner expect few of them, and look each up by its key on a table of which nothing is known.
    WHERE length(claim.id) = 32
),
granted AS (
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
    FROM asked
    CROSS JOIN judged
    -- The age of a time-ordered key. `greatest` passes over a floor that is not there.
    WHERE asked.key_time IS NULL
        OR asked.max_age IS NULL
        OR (
            asked.key_time > greatest(judged.now - asked.max_age, asked.floor)
            AND asked.key_time <= judged.now + asked.drift
        )
    ON CONFLICT (id) DO NOTHING
    RETURNING id, nonce, token
)
SELECT
    asked.id AS asked,
    granted.token AS granted,
    granted.nonce AS granted_to,
    judged.now,
    CASE
        WHEN record.id IS NOT NULL
            THEN (SELECT max(floor) FROM idempotency_floors WHERE class IN (asked.key_class, record.key_class))
    END AS floor,
    record.id,
    record.format,
    record.state,
    record.since,
    record.fingerprint,
    record.nonce,
    record.token,
    record.attempt,
    record.lease_until,
    record.recovery,
    record.response_window,
    record.tombstone_window,
    record.max_age,
    record.drift,
    record.key_class,
    record.key_time,
    record.dead_nonces,
    record.resolved_by,
    record.resolved_why,
    record.status,
    record.location,
    record.payload
FROM asked
CROSS JOIN judged
LEFT JOIN granted
    ON granted.id = asked.id
-- As the table was when the statement began, so without the rows that it makes.
LEFT JOIN idempotency_records AS record
    ON record.id = asked.id;
