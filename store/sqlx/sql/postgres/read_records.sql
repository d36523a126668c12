-- Several records as `read_record.sql` has one: a row each, also where there is no record. For claims without an age limit: of the floors there is
-- the record's own alone.
-- $1 the time that a test gives, else NULL; $2 their ids.
SELECT
    asked.id AS asked,
    -- No token is granted and no key judged below a time at which something was forgotten.
    greatest(
        coalesce($1, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT),
        (SELECT clock FROM idempotency_clock)
    ) AS now,
    (SELECT floor FROM idempotency_floors WHERE class = record.key_class) AS floor,
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
FROM unnest($2::BYTEA[]) AS asked (id)
LEFT JOIN idempotency_records AS record
    ON record.id = asked.id
-- They all are. It makes the planner expect few of them, and look each up by its key on a table of which nothing is known.
WHERE length(asked.id) = 32;
