-- In place of the timeline where there is none. No row: the transaction that was begun is over.
SELECT 0::BIGINT AS timeline
WHERE current_setting('idempotency.fenced', TRUE) = 'yes';
