-- Forgets a record that was judged in this same transaction, and still only if it is due at ?2: a sweep that
-- deletes by id alone can delete a new life.
DELETE FROM idempotency_records
WHERE id = ?1
    AND due <= ?2;
