-- There as long as the transaction is: a deadlock ends a whole one, and an application may go on after it.
SAVEPOINT idempotency;
