-- Forgets a record that this transaction judged under lock, and still only as it was judged, by state, token and time:
-- a sweep that deletes by id alone can delete a new life.
-- Parameters: id, state, token; the clock.
DELETE FROM idempotency_records
WHERE id = ?
    AND state = ?
    AND token <=> ?
    AND due <= ?;
