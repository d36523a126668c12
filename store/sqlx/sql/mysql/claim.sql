-- Claims a key that nobody has, if its age allows it. Error 1062 when there is a row, whatever its state: nobody claims before
-- a read has found none, so that a duplicate does not lock the row. Whoever was first reads its own nonce in the row
-- afterwards: no row count decides.
-- Runs at READ COMMITTED only: at REPEATABLE READ the selects in it would lock what they read.
-- Parameters: the time that a test gives, else NULL; then in the order of `claimed`. They are cast because MySQL types a
-- parameter by the place where it stands.
/*M!100300 SET STATEMENT innodb_lock_wait_timeout = 5 FOR */
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
    claimed.id,
    claimed.format,
    'in-flight',
    claimed.now,
    claimed.fingerprint,
    claimed.nonce,
    LEAST(GREATEST(claimed.now, 1), 9007199254740991),
    1,
    claimed.now + claimed.lease,
    claimed.recovery,
    claimed.response_window,
    claimed.tombstone_window,
    claimed.max_age,
    claimed.drift,
    claimed.key_class,
    claimed.key_time,
    '',
    -- GREATEST and LEAST of anything and NULL are NULL. Without `early` a completion is to move it.
    LEAST(
        GREATEST(
            claimed.now + claimed.lease + claimed.tombstone_window,
            COALESCE(claimed.key_time + claimed.max_age + claimed.drift, 0),
            claimed.now + claimed.token_hold
        ) + 1,
        claimed.now + COALESCE(claimed.early, 9007199254740991)
    )
FROM (
    SELECT
        CAST(GREATEST(
            COALESCE(?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))),
            COALESCE((SELECT clock FROM idempotency_clock), 0)
        ) AS SIGNED) AS now,
        CAST(? AS BINARY(32)) AS id,
        CAST(? AS SIGNED) AS format,
        CAST(? AS BINARY(33)) AS fingerprint,
        CAST(? AS BINARY(16)) AS nonce,
        CAST(? AS SIGNED) AS lease,
        CAST(? AS CHAR(16)) AS recovery,
        CAST(? AS SIGNED) AS response_window,
        CAST(? AS SIGNED) AS tombstone_window,
        CAST(? AS SIGNED) AS max_age,
        CAST(? AS SIGNED) AS drift,
        CAST(? AS BINARY) AS key_class,
        CAST(? AS SIGNED) AS key_time,
        -- How long a row outlives its token.
        CAST(? AS SIGNED) AS token_hold,
        CAST(? AS SIGNED) AS early
) AS claimed
-- The age of a time-ordered key.
WHERE claimed.key_time IS NULL
    OR claimed.max_age IS NULL
    OR (
        claimed.key_time > claimed.now - claimed.max_age
        AND claimed.key_time <= claimed.now + claimed.drift
        AND NOT EXISTS (
            SELECT 1
            FROM idempotency_floors AS forgotten
            WHERE forgotten.class = claimed.key_class
                AND forgotten.floor >= claimed.key_time
        )
    );
