//! An outcome in its effect's own transaction.

use std::ops::{Deref, DerefMut};

use idempotency::transaction::{
    self, BeginError, CommitError, CommitFailure, Fate, Opening, Recordable, TransactionalStore,
};
use idempotency::{Attempt, Holder, Nonce, Outcome, StoreError, Timestamp, protocol};
use sqlx::mysql::{MySql, MySqlConnection};
use sqlx::{Executor, Transaction};

use super::db::{Db, Tries};
use super::error::{self, Failure};
use super::{MySqlStore, operations, sql};
use crate::{Isolation, row};

/// A transaction of the store's database, for an effect and its outcome. It stands for its connection: statements run on `&mut *transaction`.
/// Dropped, it is rolled back.
///
/// It ends by [`MySqlStore::commit`] or by being dropped, not by a statement `COMMIT` of yours, nor by one that commits by itself, such
/// as the definition of a table. Savepoints within it are fine; a savepoint is no transaction of this type, so it cannot be taken
/// for one. A statement of yours that failed is a reason to drop it: a wait for a lock that took too long ends the statement
/// and not the transaction.
#[derive(Debug)]
#[must_use = "dropped, it is rolled back"]
pub struct MySqlTransaction {
    transaction: Transaction<'static, MySql>,
    /// The clock when it was opened.
    opened: Timestamp,
    opened_for: Nonce,
}

impl Deref for MySqlTransaction {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.transaction
    }
}

impl DerefMut for MySqlTransaction {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.transaction
    }
}

impl MySqlStore {
    /// Begins the transaction that is to hold this attempt's effect and its outcome, at READ COMMITTED. See
    /// [`begin_with`](Self::begin_with).
    ///
    /// # Errors
    /// As [`begin_with`](Self::begin_with).
    ///
    /// # Cancel safety
    /// As [`begin_with`](Self::begin_with).
    pub async fn begin(&self, attempt: &Attempt) -> Result<MySqlTransaction, BeginError> {
        self.begin_with(attempt, Isolation::default()).await
    }

    /// Begins the transaction that is to hold this attempt's effect and its outcome. The attempt's lease is lengthened to the
    /// [transaction limit](idempotency::Settings::transaction_limit) (30 s) and renewed no more; a transaction that takes longer
    /// can be taken over and is then rolled back when it comes to its commit. Within it, a statement waits 5 s at most for a lock.
    ///
    /// A process that stands still inside for the transaction limit is cut off by MariaDB: its successor waits no longer. **MySQL does not do
    /// that**: there a stopped client keeps its row locks until somebody kills its session or its TCP connection ends; set
    /// `wait_timeout` and keep-alives with that in mind. On a [pool of yours](Self::from_pool) the sessions' own timeouts hold in
    /// both: `innodb_lock_wait_timeout`, `idle_transaction_timeout`.
    ///
    /// An attempt whose transaction could not be committed may begin another one.
    ///
    /// # Errors
    /// [`BeginError`]: superseded, or the store could not say. Nothing was begun.
    ///
    /// # Cancel safety
    /// Dropped, nothing was begun; the lease may have been lengthened and is not renewed any more.
    pub async fn begin_with(&self, attempt: &Attempt, isolation: Isolation) -> Result<MySqlTransaction, BeginError> {
        transaction::begin(self, attempt, async |opening| self.open_with(opening, isolation).await).await
    }

    /// Records `response` as the outcome of this attempt in its transaction, and commits both: effect and outcome are there
    /// together, or neither is. The layer then sends what the handler returns and records nothing more.
    ///
    /// # Errors
    /// [`CommitError`]. What the handler returns then matters only after [`CommitError::NotCommitted`]: a superseded attempt's
    /// client gets what is on record.
    ///
    /// # Cancel safety
    /// Dropped before it was polled: rolled back. Later: carried out whole, in a task of its own.
    pub async fn commit<R: Recordable>(
        &self,
        attempt: &Attempt,
        transaction: MySqlTransaction,
        response: R,
    ) -> Result<R, CommitError> {
        transaction::commit(self, attempt, transaction, response).await
    }

    /// In a task of its own: whoever leaves in the middle of a BEGIN leaves the pool a session in a transaction that nobody
    /// knows of, and what stands alone there later is never committed.
    async fn open_with(&self, opening: Opening, isolation: Isolation) -> Result<MySqlTransaction, StoreError> {
        self.run(move |db| async move { open(&db, opening, isolation).await }).await
    }
}

impl TransactionalStore for MySqlStore {
    type Transaction = MySqlTransaction;

    async fn open_transaction(&self, opening: Opening) -> Result<MySqlTransaction, StoreError> {
        self.open_with(opening, Isolation::default()).await
    }

    fn opened_for(transaction: &MySqlTransaction) -> Nonce {
        transaction.opened_for
    }

    async fn record_in(
        &self,
        transaction: &mut MySqlTransaction,
        holder: &Holder,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        // A deadlock ends the whole transaction, and what follows would be written without the effect: so this comes first,
        // and fails then.
        transaction.transaction.execute(sqlx::raw_sql(sql::RELEASE)).await.map_err(error::store_error)?;
        let statement = operations::completion_in_transaction(&self.db, transaction.opened, holder, outcome);
        let recorded = transaction.transaction.execute(statement).await.map_err(error::store_error)?;
        // Its state changes, so a row that is found is changed, whatever the driver counts.
        Ok(recorded.rows_affected() == 1)
    }

    async fn commit_transaction(&self, transaction: MySqlTransaction) -> Result<(), CommitFailure> {
        transaction.transaction.commit().await.map_err(|error| {
            let certain = error::is_certain_rollback(&error);
            let error = error::store_error(error);
            if certain { CommitFailure::NotCommitted(error) } else { CommitFailure::Unknown(error) }
        })
    }

    async fn roll_back(&self, transaction: MySqlTransaction) {
        // A connection that does not work any more is closed, and the server rolls back.
        let _ = transaction.transaction.rollback().await;
    }

    async fn fate(&self, holder: &Holder) -> Result<Fate, StoreError> {
        let holder = *holder;
        self.run(move |db| async move {
            let mut tries = Tries::new();
            loop {
                let fate = fate_once(&db, &holder).await;
                if let Some(fate) = tries.judge(fate).await? {
                    return Ok(fate);
                }
            }
        })
        .await
    }
}

async fn open(db: &Db, opening: Opening, isolation: Isolation) -> Result<MySqlTransaction, StoreError> {
    let begin = match isolation {
        Isolation::ReadCommitted => sql::BEGIN_READ_COMMITTED,
        Isolation::RepeatableRead => sql::BEGIN_REPEATABLE_READ,
        Isolation::Serializable => sql::BEGIN_SERIALIZABLE,
    };
    let rows = db.read(db.timed(sql::CLOCK)).await.map_err(Failure::into_store_error)?;
    let first = rows.first().ok_or_else(|| error::store_error(sqlx::Error::RowNotFound))?;
    let opened = row::now(first)?;
    let mut transaction = db.connections.begin_with(begin).await.map_err(error::store_error)?;
    if db.own_sessions() {
        // The server counts in seconds.
        let seconds = opening.limit.as_secs().max(1);
        transaction.execute(sqlx::query(sql::TRANSACTION_LIMIT).bind(seconds)).await.map_err(error::store_error)?;
        transaction.execute(sqlx::raw_sql(sql::LIMIT_IDLENESS)).await.map_err(error::store_error)?;
    }
    transaction.execute(sqlx::raw_sql(sql::SAVEPOINT)).await.map_err(error::store_error)?;
    Ok(MySqlTransaction { transaction, opened, opened_for: opening.nonce })
}

async fn fate_once(db: &Db, holder: &Holder) -> Result<Fate, Failure> {
    let (writing, judged) = operations::lock(db, &holder.id, None).await?;
    writing.rollback().await?;
    let now = judged.now;
    Ok(protocol::fate(judged.record()?.as_ref(), holder, now))
}
