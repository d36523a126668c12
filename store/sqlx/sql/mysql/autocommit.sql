-- Whether a statement that stands alone is committed.
SELECT CAST(@@SESSION.autocommit AS SIGNED) AS autocommit;
