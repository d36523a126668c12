-- Forgets records that this transaction judged under lock, and each still only as it was judged, by state, token and time:
-- a sweep that deletes by id alone can delete a new life.
DELETE FROM idempotency_records AS record
USING unnest($1::BYTEA[], $2::TEXT[], $3::BIGINT[]) AS judged (id, state, token)
WHERE record.id = judged.id
    AND record.state = judged.state
    AND record.token IS NOT DISTINCT FROM judged.token
    AND record.due <= $4
RETURNING record.id;
