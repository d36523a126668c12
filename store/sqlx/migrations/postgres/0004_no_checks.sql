-- Version 4: records without CHECK constraints. The server reads and plans them anew in every statement that writes a row, which cost
-- more than the row; whoever reads a record refuses one whose columns are not as they must be.

ALTER TABLE idempotency_records
    DROP CONSTRAINT IF EXISTS idempotency_records_id_check,
    DROP CONSTRAINT IF EXISTS idempotency_records_fingerprint_check,
    DROP CONSTRAINT IF EXISTS idempotency_records_nonce_check;

INSERT INTO idempotency_migrations (version, applied_at)
VALUES (4, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT);
