//! One database: connections, transactions, the clock.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{Clock, KeyClass, RecordId, StoreError, Timestamp};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Executor, PgPool, Postgres, Transaction};

use super::error::Failure;
use super::group::{self, Asked, Completion, Waiting};
use super::options::Statements;
use super::sql;
use crate::lending::{Lending, Owner};
use crate::queue::Queue;

/// A statement of ours.
pub(super) type Query = sqlx::query::Query<'static, Postgres, PgArguments>;

pub(super) struct Db {
    pub(super) connections: Lending<Postgres>,
    pub(super) statements: Statements,
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// How long one waits to be asked for together with others.
    pub(super) patience: Duration,
    pub(super) claims: Queue<Waiting<Asked>>,
    pub(super) completions: Queue<Waiting<Completion>>,
}

impl Db {
    pub(super) fn new(pool: PgPool, owner: Owner, statements: Statements, clock: Option<Arc<dyn Clock>>) -> Self {
        let servers = group::SERVERS;
        let patience = pool.options().get_acquire_timeout().min(PATIENCE);
        Self {
            connections: Lending::new(pool, owner),
            patience,
            statements,
            clock,
            claims: Queue::new(servers, group::MOST),
            completions: Queue::new(servers, group::MOST),
        }
    }

    /// A statement, prepared once a session only if the session stays ours.
    pub(super) fn query(&self, statement: &'static str) -> Query {
        sqlx::query(statement).persistent(self.statements == Statements::PreparedOnce)
    }

    /// The same for one that takes the time as `$1`.
    pub(super) fn timed(&self, statement: &'static str) -> Query {
        self.query(statement).bind(self.given_now())
    }

    /// Whether a statement can do without a transaction. `try_` is the number of the try: a session whose default isolation
    /// is not READ COMMITTED can refuse it the first time.
    pub(super) fn may_stand_alone(&self, try_: u32) -> bool {
        self.statements == Statements::PreparedOnce && try_ == 0
    }

    /// What the transaction of a statement begins with that cannot do without one.
    pub(super) fn beginning(&self, try_: u32) -> Option<&'static str> {
        (!self.may_stand_alone(try_)).then_some(sql::BEGIN)
    }

    /// The rows of a statement that stands alone.
    pub(super) async fn alone(&self, try_: u32, statement: Query) -> Result<Vec<PgRow>, Failure> {
        let mut lent = self.connections.lend().await?;
        let mut session = lent.session(self.beginning(try_)).await?;
        let rows = session.connection().fetch_all(statement).await?;
        session.end().await?;
        self.connections.take_back(lent);
        Ok(rows)
    }

    /// How many rows a statement that stands alone has changed.
    pub(super) async fn change(&self, try_: u32, statement: Query) -> Result<u64, Failure> {
        let mut lent = self.connections.lend().await?;
        let mut session = lent.session(self.beginning(try_)).await?;
        let changed = session.connection().execute(statement).await?;
        session.end().await?;
        self.connections.take_back(lent);
        Ok(changed.rows_affected())
    }

    /// Begins a transaction at READ COMMITTED.
    pub(super) async fn begin(&self) -> Result<Writing<'_>, Failure> {
        Ok(Writing { db: self, transaction: self.connections.begin_with(sql::BEGIN).await? })
    }

    fn given_now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }
}

/// Tries again while others are in the way. What failed so was rolled back.
#[derive(Default)]
pub(super) struct Tries(u32);

impl Tries {
    /// The number of the try, from 0.
    pub(super) const fn number(&self) -> u32 {
        self.0
    }

    /// The answer of a try; none when there is to be another one, after a moment.
    pub(super) async fn judge<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Again(cause)) if self.0 < MOST_RETRIES => {
                tracing::debug!(number = self.0, %cause, "another try");
                self.0 += 1;
                let longest = (1 << self.0.min(6)) * 1000;
                tokio::time::sleep(Duration::from_micros(rand::random_range(500..=longest))).await;
                Ok(None)
            }
            Err(failure) => Err(failure.into_store_error()),
        }
    }
}

/// A transaction. Dropped, it is rolled back.
#[must_use]
pub(super) struct Writing<'d> {
    pub(super) db: &'d Db,
    transaction: Transaction<'static, Postgres>,
}

impl Writing<'_> {
    pub(super) async fn fetch_all(&mut self, statement: Query) -> Result<Vec<PgRow>, Failure> {
        Ok(self.transaction.fetch_all(statement).await?)
    }

    pub(super) async fn execute(&mut self, statement: Query) -> Result<u64, Failure> {
        Ok(self.transaction.execute(statement).await?.rows_affected())
    }

    /// Takes a record's row until the end of the transaction, and says whether there was one.
    pub(super) async fn lock(&mut self, id: &RecordId) -> Result<bool, Failure> {
        Ok(!self.fetch_all(self.db.query(sql::LOCK_RECORD).bind(id.as_bytes().as_slice())).await?.is_empty())
    }

    pub(super) async fn raise_floor(&mut self, class: &KeyClass, to: Timestamp) -> Result<(), Failure> {
        self.execute(self.db.query(sql::RAISE_FLOOR).bind(class.as_str()).bind(to.micros())).await.map(drop)
    }

    pub(super) async fn commit(self) -> Result<(), Failure> {
        Ok(self.transaction.commit().await?)
    }

    pub(super) async fn rollback(self) -> Result<(), Failure> {
        Ok(self.transaction.rollback().await?)
    }
}

/// Far below the minute for which a nonce that was given up is dead at the least.
const PATIENCE: Duration = Duration::from_secs(10);

/// About half a second in all.
const MOST_RETRIES: u32 = 16;
