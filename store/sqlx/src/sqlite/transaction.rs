//! An outcome in its effect's own transaction.

use std::ops::{Deref, DerefMut};

use idempotency::transaction::{
    self, BeginError, CommitError, CommitFailure, Fate, Opening, Recordable, TransactionalStore,
};
use idempotency::{Attempt, Holder, Nonce, Outcome, Settled, StoreError, protocol};
use sqlx::Executor;
use sqlx::sqlite::SqliteConnection;

use super::connections::{Deadline, Lent};
use super::db::{Db, End, cached};
use super::error::{is_busy, store_error};
use super::{SqliteStore, row, sql};

/// A transaction of the store's file, for an effect and its outcome. It stands for its connection: statements run on
/// `&mut *transaction`. Dropped, it is rolled back.
///
/// It holds the one write lock of the file from its beginning to its end, and every other writer waits: do nothing in it that waits
/// for anybody. A process that is stopped inside stops all the others, and no timeout of SQLite's cures that.
///
/// It ends by [`SqliteStore::commit`] or by being dropped, not by a statement `COMMIT` of yours. Savepoints within it are fine, made by
/// statements `SAVEPOINT` and `RELEASE` (sqlx's own `begin` within it is refused by SQLite); a savepoint is no transaction of
/// this type, so it cannot be taken for one.
#[must_use = "dropped, it is rolled back"]
pub struct SqliteTransaction {
    lent: Lent,
    opened_for: Nonce,
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.lent.connection
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.lent.connection
    }
}

impl std::fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Begins the transaction that is to hold this attempt's effect and its outcome: `BEGIN IMMEDIATE`. The attempt's lease is
    /// lengthened to the [transaction limit](idempotency::Settings::transaction_limit) (30 s) and renewed no more.
    ///
    /// # Errors
    /// [`BeginError`]: superseded, or the file stayed locked for the [busy timeout](super::SqliteOptions::busy_timeout).
    /// Nothing was begun.
    ///
    /// # Cancel safety
    /// Dropped, nothing was begun; the lease may have been lengthened and is not renewed any more.
    pub async fn begin(&self, attempt: &Attempt) -> Result<SqliteTransaction, BeginError> {
        transaction::begin(self, attempt, async |opening| open(&self.db, opening).await).await
    }

    /// Records `response` as the outcome of this attempt in its transaction, and commits both: effect and outcome are there
    /// together, or neither is. The layer then sends what the handler returns and records nothing more.
    ///
    /// # Errors
    /// [`CommitError`]. What the handler returns then matters only after [`CommitError::NotCommitted`]: a superseded attempt's
    /// client gets what is on record, as does one whose handler returns something else than what was committed.
    ///
    /// # Cancel safety
    /// Dropped before it was polled: rolled back. Later: carried out whole, in a task of its own.
    pub async fn commit<R: Recordable>(
        &self,
        attempt: &Attempt,
        transaction: SqliteTransaction,
        response: R,
    ) -> Result<R, CommitError> {
        transaction::commit(self, attempt, transaction, response).await
    }
}

impl TransactionalStore for SqliteStore {
    type Transaction = SqliteTransaction;

    async fn open_transaction(&self, opening: Opening) -> Result<SqliteTransaction, StoreError> {
        open(&self.db, opening).await
    }

    fn opened_for(transaction: &SqliteTransaction) -> Nonce {
        transaction.opened_for
    }

    async fn record_in(
        &self,
        transaction: &mut SqliteTransaction,
        holder: &Holder,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        // An error inside may have ended the transaction, and what follows would be written without the effect: so the first
        // statement is one that fails then.
        let read = row::release_and_read(&holder.id, self.db.given_now());
        let judged = row::judged(&transaction.fetch_all(read).await.map_err(store_error)?)?;
        let now = judged.now;
        let mut record = judged.record()?;
        let settled = protocol::complete(record.as_mut(), holder, outcome, now);
        match record {
            Some(record) if settled == Settled::Applied => {
                transaction.execute(row::write(&holder.id, &record)).await.map_err(store_error)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    async fn commit_transaction(&self, mut transaction: SqliteTransaction) -> Result<(), CommitFailure> {
        match transaction.execute(cached(sql::COMMIT)).await {
            Ok(_) => {
                self.db.wrote();
                transaction.lent.give_back();
                Ok(())
            }
            // The transaction is still open, and closing its connection rolls it back.
            Err(error) if is_busy(&error) => Err(CommitFailure::NotCommitted(store_error(error))),
            Err(error) => Err(CommitFailure::Unknown(store_error(error))),
        }
    }

    async fn roll_back(&self, mut transaction: SqliteTransaction) {
        if transaction.execute(cached(sql::ROLLBACK)).await.is_ok() {
            self.db.wrote();
            transaction.lent.give_back();
        }
    }

    async fn fate(&self, holder: &Holder) -> Result<Fate, StoreError> {
        let holder = *holder;
        self.run(move |db| async move {
            // Under the write lock: no transaction that could still commit is open.
            let (writing, rows) = db.begin(|given_now| row::begin_and_read(&[(&holder.id, None)], given_now)).await?;
            let end = row::judged(&rows).and_then(|judged| {
                let now = judged.now;
                Ok(End::Rollback(protocol::fate(judged.record()?.as_ref(), &holder, now)))
            });
            writing.finish(end).await
        })
        .await
    }
}

async fn open(db: &Db, opening: Opening) -> Result<SqliteTransaction, StoreError> {
    let (lent, _) = db.lock(Deadline::after(db.busy_timeout), |_| cached(sql::BEGIN_FOR_EFFECT)).await?;
    Ok(SqliteTransaction { lent, opened_for: opening.nonce })
}
