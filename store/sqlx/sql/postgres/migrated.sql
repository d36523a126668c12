-- Whether anybody ever migrated here: asking for the version fails where there is no table.
SELECT to_regclass('idempotency_migrations') IS NOT NULL AS migrated;
