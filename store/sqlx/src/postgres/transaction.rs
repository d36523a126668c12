//! An outcome in its effect's own transaction.

use std::ops::{Deref, DerefMut};

use idempotency::transaction::{
    self, BeginError, CommitError, CommitFailure, Fate, Opening, Recordable, TransactionalStore,
};
use idempotency::{Attempt, Holder, Nonce, Outcome, StoreError, protocol};
use sqlx::postgres::{PgConnection, Postgres};
use sqlx::{Executor, Transaction};

use super::db::{Db, Tries};
use super::error::{self, Failure};
use super::group::Completion;
use super::{PostgresStore, operations, sql};
use crate::Isolation;

/// A transaction of the store's database, for an effect and its outcome. It stands for its connection: statements run on `&mut *transaction`.
/// Dropped, it is rolled back.
///
/// It ends by [`PostgresStore::commit`] or by being dropped, not by a statement `COMMIT` of yours. Savepoints within it are fine; a
/// savepoint is no transaction of this type, so it cannot be taken for one.
#[derive(Debug)]
#[must_use = "dropped, it is rolled back"]
pub struct PostgresTransaction {
    transaction: Transaction<'static, Postgres>,
    opened_for: Nonce,
}

impl Deref for PostgresTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for PostgresTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

impl PostgresStore {
    /// Begins the transaction that is to hold this attempt's effect and its outcome, at READ COMMITTED. See
    /// [`begin_with`](Self::begin_with).
    ///
    /// # Errors
    /// As [`begin_with`](Self::begin_with).
    ///
    /// # Cancel safety
    /// As [`begin_with`](Self::begin_with).
    pub async fn begin(&self, attempt: &Attempt) -> Result<PostgresTransaction, BeginError> {
        self.begin_with(attempt, Isolation::default()).await
    }

    /// Begins the transaction that is to hold this attempt's effect and its outcome. The attempt's lease is lengthened to the
    /// [transaction limit](idempotency::Settings::transaction_limit) (30 s) and renewed no more; a transaction that takes longer
    /// can be taken over and is then rolled back when it comes to its commit. Within it, a statement waits 5 s at most for a
    /// lock, and a process that stands still for the transaction limit is cut off by the server: its successor waits no longer.
    ///
    /// An attempt whose transaction could not be committed may begin another one.
    ///
    /// # Errors
    /// [`BeginError`]: superseded, or the store could not say. Nothing was begun.
    ///
    /// # Cancel safety
    /// Dropped, nothing was begun; the lease may have been lengthened and is not renewed any more.
    pub async fn begin_with(&self, attempt: &Attempt, isolation: Isolation) -> Result<PostgresTransaction, BeginError> {
        transaction::begin(self, attempt, async |opening| self.open_with(opening, isolation).await).await
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
        transaction: PostgresTransaction,
        response: R,
    ) -> Result<R, CommitError> {
        transaction::commit(self, attempt, transaction, response).await
    }

    /// In a task of its own: whoever leaves in the middle of a BEGIN leaves the pool a session in a transaction that nobody
    /// knows of, and what stands alone there later is never committed.
    async fn open_with(&self, opening: Opening, isolation: Isolation) -> Result<PostgresTransaction, StoreError> {
        self.run(move |db| async move { open(&db, opening, isolation).await }).await
    }
}

impl TransactionalStore for PostgresStore {
    type Transaction = PostgresTransaction;

    async fn open_transaction(&self, opening: Opening) -> Result<PostgresTransaction, StoreError> {
        self.open_with(opening, Isolation::default()).await
    }

    fn opened_for(transaction: &PostgresTransaction) -> Nonce {
        transaction.opened_for
    }

    async fn record_in(
        &self,
        transaction: &mut PostgresTransaction,
        holder: &Holder,
        outcome: &Outcome,
    ) -> Result<bool, StoreError> {
        let completion = Completion { holder: *holder, outcome: outcome.clone() };
        let recorded =
            transaction.transaction.execute(completion.within(&self.db)).await.map_err(error::store_error)?;
        Ok(recorded.rows_affected() == 1)
    }

    async fn commit_transaction(&self, transaction: PostgresTransaction) -> Result<(), CommitFailure> {
        transaction.transaction.commit().await.map_err(|error| {
            let certain = error::is_certain_rollback(&error);
            let error = error::store_error(error);
            if certain { CommitFailure::NotCommitted(error) } else { CommitFailure::Unknown(error) }
        })
    }

    async fn roll_back(&self, transaction: PostgresTransaction) {
        // A connection that does not work any more is closed, and the server rolls back.
        let _ = transaction.transaction.rollback().await;
    }

    async fn fate(&self, holder: &Holder) -> Result<Fate, StoreError> {
        let holder = *holder;
        self.run(move |db| async move {
            let mut tries = Tries::default();
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

async fn open(db: &Db, opening: Opening, isolation: Isolation) -> Result<PostgresTransaction, StoreError> {
    let begin = match isolation {
        Isolation::ReadCommitted => sql::BEGIN_READ_COMMITTED,
        Isolation::RepeatableRead => sql::BEGIN_REPEATABLE_READ,
        Isolation::Serializable => sql::BEGIN_SERIALIZABLE,
    };
    let mut transaction = db.connections.begin_with(begin).await.map_err(error::store_error)?;
    // The server's own limit is about 24 days.
    let millis = i32::try_from(opening.limit.as_millis()).unwrap_or(i32::MAX);
    let limited = transaction.execute(db.query(sql::LIMIT_IDLENESS).bind(millis.to_string())).await;
    limited.map_err(error::store_error)?;
    Ok(PostgresTransaction { transaction, opened_for: opening.nonce })
}

async fn fate_once(db: &Db, holder: &Holder) -> Result<Fate, Failure> {
    let (writing, judged) = operations::lock(db, &holder.id, None).await?;
    writing.rollback().await?;
    let now = judged.now;
    Ok(protocol::fate(judged.record()?.as_ref(), holder, now))
}
