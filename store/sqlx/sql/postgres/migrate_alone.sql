-- One migration at a time, until the end of the transaction.
SELECT pg_advisory_xact_lock(7594862031240935527);
