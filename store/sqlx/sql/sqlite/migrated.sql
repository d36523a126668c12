-- Whether anybody ever migrated here: asking for the version fails where there is no table.
SELECT count(*) AS tables
FROM sqlite_schema
WHERE type = 'table'
    AND name = 'idempotency_migrations';
