//! One database file: readers, the writer, the clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotency::{Clock, KeyClass, StoreError, Timestamp};
use sqlx::Executor;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use tokio::time::{Instant, sleep};

use super::connections::{Connections, Deadline, Lent};
use super::error::{is_busy, store_error};
use super::group::{AnyChange, Look};
use super::sql;
use crate::queue::Queue;

pub(super) struct Db {
    pub(super) readers: Connections,
    pub(super) writer: Connections,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) busy_timeout: Duration,
    pub(super) turn: Mutex<Turn>,
    /// Whether the last ones to change something met, so that whoever comes is likely to meet somebody too.
    pub(super) met: AtomicBool,
    pub(super) looks: Queue<Look>,
    pub(super) changes: Queue<Box<dyn AnyChange>>,
}

impl Db {
    /// The rows of a statement that writes nothing. It sees the last commit, whoever is writing meanwhile.
    pub(super) async fn read(&self, statement: impl Fn() -> Query) -> Result<Vec<SqliteRow>, StoreError> {
        let deadline = Deadline::after(self.busy_timeout);
        let mut lent = self.readers.lend(deadline).await?;
        loop {
            match lent.connection.fetch_all(statement()).await {
                Ok(rows) => {
                    lent.give_back();
                    return Ok(rows);
                }
                Err(error) if is_busy(&error) && deadline.pause().await => {}
                Err(error) => return Err(store_error(error)),
            }
        }
    }

    /// The writer's connection, when nobody here writes or waits to, nor did a moment ago. Whoever has it is alone, and need not give way to
    /// other processes: it leaves them room between two of its statements.
    pub(super) fn writer_at_once(&self) -> Option<Lent> {
        let is_alone = !self.met.load(Ordering::Relaxed) && self.changes.is_idle();
        is_alone.then(|| self.writer.lend_at_once()).flatten()
    }

    /// Begins a transaction that holds the one write lock of the file from now on, and reads. `begin_and_read` begins
    /// with [`sql::BEGIN`]; it is given the time that a test gives.
    pub(super) async fn begin(
        &self,
        begin_and_read: impl Fn(Option<i64>) -> Query,
    ) -> Result<(Writing<'_>, Vec<SqliteRow>), StoreError> {
        self.begin_by(Deadline::after(self.busy_timeout), begin_and_read).await
    }

    /// The same with another limit than the busy timeout.
    pub(super) async fn begin_by(
        &self,
        deadline: Deadline,
        begin_and_read: impl Fn(Option<i64>) -> Query,
    ) -> Result<(Writing<'_>, Vec<SqliteRow>), StoreError> {
        let (lent, rows) = self.lock(deadline, begin_and_read).await?;
        Ok((Writing { db: self, lent }, rows))
    }

    /// The writer's connection, in a transaction that holds the write lock, and what was read there.
    pub(super) async fn lock(
        &self,
        deadline: Deadline,
        begin_and_read: impl Fn(Option<i64>) -> Query,
    ) -> Result<(Lent, Vec<SqliteRow>), StoreError> {
        let mut lent = self.writer.lend(deadline).await?;
        self.take_turn().await;
        let mut waited = false;
        let rows = loop {
            match lent.connection.fetch_all(begin_and_read(self.given_now())).await {
                Ok(rows) => break rows,
                Err(error) if is_busy(&error) => {
                    if !deadline.pause().await {
                        lent.give_back();
                        return Err(store_error(error));
                    }
                    waited = true;
                }
                Err(error) => {
                    // It may have been begun, if not carried out: whoever is next has no lock of ours in the way.
                    if lent.connection.execute(cached(sql::ROLLBACK)).await.is_ok() {
                        lent.give_back();
                    }
                    return Err(store_error(error));
                }
            }
        };
        if waited {
            self.turn().since = Instant::now();
        }
        Ok((lent, rows))
    }

    /// Runs a statement on the writer's connection that cannot be in a transaction. Busy is an answer like any other.
    pub(super) async fn outside_transaction(&self, statement: Query) -> Result<(), StoreError> {
        let mut lent = self.writer.lend(Deadline::after(self.busy_timeout)).await?;
        match lent.connection.execute(statement).await {
            Err(error) if !is_busy(&error) => Err(store_error(error)),
            _ => {
                lent.give_back();
                Ok(())
            }
        }
    }

    /// Leaves the write lock alone for a moment when this process has had it for long: SQLite queues nobody, and
    /// transactions back to back would starve other processes.
    async fn take_turn(&self) {
        let now = Instant::now();
        let give_way = {
            let mut turn = self.turn();
            let idle = now.duration_since(turn.last) >= GAP;
            let give_way = !idle && now.duration_since(turn.since) >= LONGEST_TURN;
            if idle || give_way {
                turn.since = now;
            }
            give_way
        };
        if give_way {
            sleep(GAP).await;
        }
    }

    /// A transaction has ended.
    pub(super) fn wrote(&self) {
        self.turn().last = Instant::now();
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time that a test gives.
    pub(super) fn given_now(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().micros())
    }
}

/// Since when this process has written back to back, and when it last did.
pub(super) struct Turn {
    since: Instant,
    last: Instant,
}

impl Default for Turn {
    fn default() -> Self {
        let now = Instant::now();
        Self { since: now, last: now }
    }
}

/// How a transaction ends, with its answer.
pub(super) enum End<T> {
    /// With this statement, which commits.
    Commit(Query, T),
    /// Nothing was written.
    Rollback(T),
}

/// A transaction that holds the write lock. Dropped, its connection is closed and SQLite rolls back.
#[must_use]
pub(super) struct Writing<'d> {
    db: &'d Db,
    lent: Lent,
}

impl Writing<'_> {
    pub(super) async fn raise_floor(&mut self, class: &KeyClass, to: Timestamp) -> Result<(), StoreError> {
        self.execute(cached(sql::RAISE_FLOOR).bind(class.as_str()).bind(to.micros())).await
    }

    pub(super) async fn fetch_all(&mut self, statement: Query) -> Result<Vec<SqliteRow>, StoreError> {
        self.lent.connection.fetch_all(statement).await.map_err(store_error)
    }

    pub(super) async fn execute(&mut self, statement: Query) -> Result<(), StoreError> {
        self.lent.connection.execute(statement).await.map(drop).map_err(store_error)
    }

    /// The transaction has ended with what was read at its beginning.
    pub(super) fn has_ended(self) {
        self.db.wrote();
        self.lent.give_back();
    }

    /// Commits or rolls back, whichever its body came to. An error rolls back.
    pub(super) async fn finish<T>(mut self, end: Result<End<T>, StoreError>) -> Result<T, StoreError> {
        let (last, answer) = match end {
            Ok(End::Commit(last, answer)) => (last, Ok(answer)),
            Ok(End::Rollback(answer)) => (cached(sql::ROLLBACK), Ok(answer)),
            Err(error) => (cached(sql::ROLLBACK), Err(error)),
        };
        // When this fails, the transaction may have ended or not, so the connection goes: that is certain.
        match (self.execute(last).await, answer) {
            (Ok(()), answer) => {
                self.has_ended();
                answer
            }
            (Err(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
        }
    }
}

/// A statement of ours. Prepared once a connection.
pub(super) type Query = sqlx::query::Query<'static, sqlx::Sqlite, SqliteArguments>;

pub(super) fn cached(statement: &'static str) -> Query {
    sqlx::query(statement)
}

/// Others try again every 1.3 ms at most, plus what the timer adds.
const GAP: Duration = Duration::from_millis(3);

/// A process that has written back to back for so long leaves a gap.
const LONGEST_TURN: Duration = Duration::from_millis(50);
