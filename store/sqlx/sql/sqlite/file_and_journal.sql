-- Where the database is, empty when it is in memory, and how it is journaled.
SELECT
    (SELECT file FROM pragma_database_list WHERE name = 'main') AS file,
    (SELECT journal_mode FROM pragma_journal_mode) AS journal_mode;
