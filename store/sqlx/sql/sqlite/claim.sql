-- Claims keys that nobody has, without an age limit: one statement. Where there is a row, whatever its state, nothing is written and
-- nothing comes back.
-- The time that a test gives, else NULL; the format; how long a row outlives its token. Then, for each claim, what it brings; the
-- program repeats the line of VALUES where there are several, and one of NULLs is none.
WITH given (time, format, token_hold) AS (
    VALUES
    (?, ?, ?)
),
judged AS MATERIALIZED (
    SELECT
        given.format,
        given.token_hold,
        -- No token is granted below a time at which something was forgotten.
        max(
            coalesce(given.time, CAST(unixepoch('subsec') * 1000000 AS INTEGER)),
            coalesce((SELECT clock FROM idempotency_clock), given.time, 0)
        ) AS now
    FROM given
),
asked (id, fingerprint, nonce, lease, recovery, response_window, tombstone_window, key_time) AS (
    VALUES
    (?, ?, ?, ?, ?, ?, ?, ?)
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
    key_time,
    dead_nonces,
    due
)
SELECT
    asked.id,
    judged.format,
    'in-flight',
    judged.now,
    asked.fingerprint,
    asked.nonce,
    min(max(judged.now, 1), 9007199254740991),
    1,
    judged.now + asked.lease,
    asked.recovery,
    asked.response_window,
    asked.tombstone_window,
    asked.key_time,
    x'',
    -- Not later than there is something to do, now or once it is completed: a completion then leaves the index alone.
    min(
        judged.now + asked.response_window,
        max(judged.now + asked.lease + asked.tombstone_window, judged.now + judged.token_hold) + 1
    )
FROM judged
CROSS JOIN asked
WHERE asked.id IS NOT NULL
ON CONFLICT (id) DO NOTHING
RETURNING
    id,
    token;
