//! One database: connections, transactions, the clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotency::{Clock, KeyClass, RecordId, StoreError, Timestamp};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Executor, MySql, Transaction};

use super::error::Failure;
use super::sql;
use crate::lending::{Lending, Owner};

/// A statement of ours. Prepared once a connection.
pub(super) type Query = sqlx::query::Query<'static, MySql, MySqlArguments>;

pub(super) struct Db {
    pub(super) connections: Lending<MySql>,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl Db {
    /// A statement whose first parameter is the time that a test gives.
    pub(super) fn timed(&self, statement: &'static str) -> Query {
        sqlx::query(statement).bind(self.given_now())
    }

    /// Whether the pool's sessions are as [`sql::CONNECT`] makes them.
    pub(super) fn own_sessions(&self) -> bool {
        self.connections.owner() == Owner::Store
    }

    /// The time that a test gives.
    pub(super) fn given_now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }

    /// The rows of a plain read, which sees what was committed before it.
    pub(super) async fn read(&self, statement: Query) -> Result<Vec<MySqlRow>, Failure> {
        let mut lent = self.connections.lend().await?;
        let rows = lent.connection.fetch_all(statement).await?;
        self.connections.take_back(lent);
        Ok(rows)
    }

    /// How many rows a statement at READ COMMITTED changed that is a transaction of its own.
    pub(super) async fn change(&self, statement: Query) -> Result<u64, Failure> {
        let mut lent = self.connections.lend().await?;
        let mut session = lent.session((!self.own_sessions()).then_some(sql::BEGIN)).await?;
        let changed = session.connection().execute(statement).await?;
        session.end().await?;
        self.connections.take_back(lent);
        Ok(changed.rows_affected())
    }

    /// Begins a transaction at READ COMMITTED.
    pub(super) async fn begin(&self) -> Result<Writing, Failure> {
        Ok(Writing(self.connections.begin_with(sql::BEGIN).await?))
    }
}

/// Tries again while others are in the way. What failed so was rolled back: a wait for a lock that takes too long ends the
/// statement and not its transaction, so whoever sees an error drops the transaction.
pub(super) struct Tries {
    number: u32,
    since: Instant,
}

impl Tries {
    pub(super) fn new() -> Self {
        Self { number: 0, since: Instant::now() }
    }

    /// The answer of a try; none when there is to be another one, after a moment.
    pub(super) async fn judge<T>(&mut self, result: Result<T, Failure>) -> Result<Option<T>, StoreError> {
        match result {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Again(cause)) if self.number < MOST_RETRIES && self.since.elapsed() < LONGEST => {
                tracing::debug!(number = self.number, %cause, "another try");
                self.number += 1;
                let longest = (1 << self.number.min(6)) * 1000;
                tokio::time::sleep(Duration::from_micros(rand::random_range(500..=longest))).await;
                Ok(None)
            }
            Err(failure) => Err(failure.into_store_error()),
        }
    }
}

/// A transaction. Dropped, it is rolled back.
#[must_use]
pub(super) struct Writing(Transaction<'static, MySql>);

impl Writing {
    pub(super) async fn fetch_all(&mut self, statement: Query) -> Result<Vec<MySqlRow>, Failure> {
        Ok(self.0.fetch_all(statement).await?)
    }

    /// How many rows it changed, or found as they were to be.
    pub(super) async fn execute(&mut self, statement: Query) -> Result<u64, Failure> {
        Ok(self.0.execute(statement).await?.rows_affected())
    }

    /// Takes a record's row until the end of the transaction, and says whether there was one.
    pub(super) async fn lock(&mut self, id: &RecordId) -> Result<bool, Failure> {
        Ok(!self.fetch_all(sqlx::query(sql::LOCK_RECORD).bind(id.as_bytes().as_slice())).await?.is_empty())
    }

    pub(super) async fn raise_floor(&mut self, class: &KeyClass, to: Timestamp) -> Result<(), Failure> {
        self.execute(sqlx::query(sql::RAISE_FLOOR).bind(class.as_str()).bind(to.micros())).await.map(drop)
    }

    pub(super) async fn commit(self) -> Result<(), Failure> {
        Ok(self.0.commit().await?)
    }

    pub(super) async fn rollback(self) -> Result<(), Failure> {
        Ok(self.0.rollback().await?)
    }
}

/// About half a second in all, if nobody waits for a lock.
const MOST_RETRIES: u32 = 16;

/// After so long there is no further try.
const LONGEST: Duration = Duration::from_secs(5);
