-- Whether anybody ever migrated here: asking for the version fails where there is no table. A session that was told that there is none believes it
-- until it opens a table, as here the catalog: another process may have migrated since.
SELECT EXISTS (
    SELECT
    FROM pg_class
    WHERE oid = to_regclass('idempotency_migrations')
) AS migrated;
