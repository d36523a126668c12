//! Fences in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use idempotency::StoreError;
use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow};
use sqlx::{Executor, Postgres};

use super::dialect::{Dialect, FenceDatabase};
use super::opening::Desk;
use super::{Admit, Fences};
use crate::postgres::error;
use crate::{Isolation, Statements};

/// Fences in a PostgreSQL database, over a pool of the program's own. Clones share it.
///
/// A transaction waits 5 s at most for a lock ([`lock_timeout`](Self::lock_timeout)), and a process that stands still
/// in it for 30 s is cut off by the server ([`idle_timeout`](Self::idle_timeout)): so a stopped holder never keeps its
/// successor out for longer. Both are of the transaction only, and nothing is kept in a session, so a proxy that pools
/// transactions may be in between. What the two do not end is a partitioned client in the middle of a statement: set
/// `tcp_user_timeout` and keepalives on the server.
#[derive(Clone, Debug)]
pub struct PostgresFences {
    desk: Desk<Postgres>,
    isolation: Isolation,
    idle_timeout: Duration,
}

impl PostgresFences {
    /// Fences in the database of this pool. [`PostgresStore::migrate`](crate::PostgresStore::migrate) makes the tables.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        let desk = Desk {
            pool,
            begin: Arc::from(""),
            admit: Admit::default(),
            patience: Duration::from_secs(5),
            kept: false,
            timeline: Some(include_str!("../../sql/postgres/fence_timeline.sql")),
        };
        Self { desk, isolation: Isolation::default(), idle_timeout: Duration::from_secs(30) }.composed()
    }

    /// Which tokens are admitted.
    ///
    /// Default: [`Admit::SameOrNewer`].
    #[must_use]
    pub fn admit(mut self, admit: Admit) -> Self {
        self.desk.admit = admit;
        self
    }

    /// The isolation of each transaction, whatever the session's is.
    ///
    /// Default: [`Isolation::ReadCommitted`], where the first statement after the opening sees what the holder before
    /// has written. Above it the opening is tried again until it sees the same, and a statement or a commit of yours
    /// can be refused with 40001.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }.composed()
    }

    /// How long any statement of a transaction waits for a lock, and how long an opening tries again.
    ///
    /// Default: 5 s. Shorter than the idle timeout, a stopped holder is noticed by an error
    /// ([`Busy`](idempotency::StoreErrorKind::Busy)) instead of by waiting it out.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.desk.patience = timeout;
        self.composed()
    }

    /// After how long without a statement the server ends a transaction.
    ///
    /// Default: 30 s. It bounds for how long a stopped process keeps everybody else out. Too short, and one that is
    /// only slow between two statements loses its transaction.
    #[must_use]
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: timeout, ..self }.composed()
    }

    /// How statements are sent.
    ///
    /// Default: [`Statements::InTransactions`], right through a proxy; [`Statements::PreparedOnce`] saves a trip per
    /// statement on a direct connection.
    #[must_use]
    pub fn statements(mut self, statements: Statements) -> Self {
        self.desk.kept = statements == Statements::PreparedOnce;
        self
    }

    /// Does not look at the number of the write-ahead log's timeline, for services compatible with PostgreSQL that have
    /// none.
    ///
    /// Default: it is looked at, which tells a failover between two transactions of one tenure. Without it, only what a
    /// tenure wrote itself is known to be there still, and what it only read is not.
    #[must_use]
    pub fn without_timeline(mut self) -> Self {
        // Still a statement, which fails in a transaction in which one had failed and finds nothing after its end.
        self.desk.timeline = Some(include_str!("../../sql/postgres/fence_no_timeline.sql"));
        self
    }

    /// SET takes no parameters, and a SELECT in its place would be the transaction's first look at the data, before the
    /// fence. So two numbers are written into it, once. The last setting marks the transaction for as long as it lasts: a
    /// COMMIT says that all is well also where it was rolled back before.
    fn composed(mut self) -> Self {
        let isolation = match self.isolation {
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        };
        let (lock, idle) = (millis(self.desk.patience), millis(self.idle_timeout));
        let begin = format!(
            "BEGIN ISOLATION LEVEL {isolation} READ WRITE;
            SET LOCAL lock_timeout = {lock};
            SET LOCAL idle_in_transaction_session_timeout = {idle};
            SET LOCAL idempotency.fenced = 'yes';"
        );
        self.desk.begin = begin.into();
        self
    }
}

impl Fences for PostgresFences {
    type Database = Postgres;

    fn desk(&self) -> &Desk<Postgres> {
        &self.desk
    }
}

impl FenceDatabase for Postgres {}

impl Dialect for Postgres {
    type Ours = sqlx::query::Query<'static, Self, PgArguments>;

    const ADVANCE: Option<&'static str> = Some(include_str!("../../sql/postgres/fence_advance.sql"));
    const LOCK: &'static str = include_str!("../../sql/postgres/fence_lock.sql");
    const LOCK_SHARED: &'static str = include_str!("../../sql/postgres/fence_lock_shared.sql");
    const WRITE: &'static str = include_str!("../../sql/postgres/fence_write.sql");
    const INSERT: &'static str = include_str!("../../sql/postgres/fence_insert.sql");
    const SHARE_WATERMARK: &'static str = include_str!("../../sql/postgres/fence_share_watermark.sql");
    const RAISE_WATERMARK: &'static str = include_str!("../../sql/postgres/fence_raise_watermark.sql");
    const STALE_FENCES: &'static str = include_str!("../../sql/postgres/fence_stale.sql");
    const DELETE_FENCE: &'static str = include_str!("../../sql/postgres/fence_delete.sql");
    const ONCE: &'static str = include_str!("../../sql/postgres/fence_once.sql");
    const FORGET_ONCE: &'static str = include_str!("../../sql/postgres/fence_forget_once.sql");
    const LONGEST_PAUSE: Duration = Duration::from_millis(64);

    fn statement(sql: &'static str, kept: bool) -> Self::Ours {
        sqlx::query(sql).persistent(kept)
    }

    async fn fetch(connection: &mut PgConnection, statement: Self::Ours) -> Result<Vec<PgRow>, sqlx::Error> {
        connection.fetch_all(statement).await
    }

    async fn change(connection: &mut PgConnection, statement: Self::Ours) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(statement).await?.rows_affected())
    }

    fn is_over(error: &sqlx::Error) -> bool {
        // in_failed_sql_transaction
        error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|state| state == "25P02")
    }

    fn store_error(error: sqlx::Error) -> StoreError {
        error::store_error(error)
    }
}

/// At least 1, since 0 is without end; the server's limit is about 24 days.
fn millis(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1)
}
