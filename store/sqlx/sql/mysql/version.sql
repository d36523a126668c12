SELECT COALESCE(MAX(version), 0) AS version
FROM idempotency_migrations;
