//! Fences in MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use idempotency::StoreError;
use sqlx::mysql::{MySqlArguments, MySqlConnection, MySqlDatabaseError, MySqlPool, MySqlRow};
use sqlx::{Executor, MySql};

use super::dialect::{Dialect, FenceDatabase};
use super::opening::Desk;
use super::{Admit, Fences};
use crate::Isolation;
use crate::mysql::error;

/// Fences in a MySQL or MariaDB database, over a pool of the program's own. Clones share it.
///
/// **A process that is stopped in the middle of a transaction keeps its successor out** until the server ends it.
/// MariaDB does with `idle_write_transaction_timeout` (off by default): set it on the server, or in the pool's
/// `after_connect` with `SET SESSION`. MySQL has nothing like it but `wait_timeout` (8 hours by default) and `KILL`.
///
/// The statements here wait 5 s for a lock in MariaDB. In MySQL they wait as yours do in both, for
/// `innodb_lock_wait_timeout`, 50 s by default: set it to a few seconds in the same place.
///
/// When a lock does not come in time (1205), only the statement is rolled back and a commit keeps what was written
/// before; a deadlock (1213) rolls back everything. After any error, drop the transaction.
///
/// A failover to a replica that lagged behind is found out by what the tenure itself had committed: see
/// [`reopen`](Fences::reopen).
#[derive(Clone, Debug)]
pub struct MySqlFences {
    desk: Desk<MySql>,
}

impl MySqlFences {
    /// Fences in the database of this pool. [`MySqlStore::migrate`](crate::MySqlStore::migrate) makes the tables.
    #[must_use]
    pub fn new(pool: MySqlPool) -> Self {
        let desk = Desk {
            pool,
            begin: Arc::from(begin(Isolation::default())),
            admit: Admit::default(),
            patience: Duration::from_secs(5),
            kept: true,
            timeline: None,
        };
        Self { desk }
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
    /// Default: [`Isolation::ReadCommitted`]. At [`Isolation::RepeatableRead`] the snapshot begins with the first plain
    /// read of yours, after the opening. Above the default, first openings of resources that are neighbours by name
    /// lock each other's gaps and are tried again after a deadlock.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.desk.begin = begin(isolation).into();
        self
    }

    /// How long an opening tries again after deadlocks and waits that ended.
    ///
    /// Default: 5 s, which is also how long one statement waits in MariaDB.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.desk.patience = patience;
        self
    }
}

const fn begin(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadCommitted => include_str!("../../sql/mysql/fence_begin_read_committed.sql"),
        Isolation::RepeatableRead => include_str!("../../sql/mysql/fence_begin_repeatable_read.sql"),
        Isolation::Serializable => include_str!("../../sql/mysql/fence_begin_serializable.sql"),
    }
}

impl Fences for MySqlFences {
    type Database = MySql;

    fn desk(&self) -> &Desk<MySql> {
        &self.desk
    }
}

impl FenceDatabase for MySql {}

impl Dialect for MySql {
    type Ours = sqlx::query::Query<'static, Self, MySqlArguments>;

    // MySQL returns no row that it changes.
    const ADVANCE: Option<&'static str> = None;
    const LOCK: &'static str = include_str!("../../sql/mysql/fence_lock.sql");
    const LOCK_SHARED: &'static str = include_str!("../../sql/mysql/fence_lock_shared.sql");
    const WRITE: &'static str = include_str!("../../sql/mysql/fence_write.sql");
    const INSERT: &'static str = include_str!("../../sql/mysql/fence_insert.sql");
    const SHARE_WATERMARK: &'static str = include_str!("../../sql/mysql/fence_share_watermark.sql");
    const RAISE_WATERMARK: &'static str = include_str!("../../sql/mysql/fence_raise_watermark.sql");
    const STALE_FENCES: &'static str = include_str!("../../sql/mysql/fence_stale.sql");
    const DELETE_FENCE: &'static str = include_str!("../../sql/mysql/fence_delete.sql");
    const ONCE: &'static str = include_str!("../../sql/mysql/fence_once.sql");
    const FORGET_ONCE: &'static str = include_str!("../../sql/mysql/fence_forget_once.sql");
    const LONGEST_PAUSE: Duration = Duration::from_millis(64);

    fn statement(sql: &'static str, kept: bool) -> Self::Ours {
        sqlx::query(sql).persistent(kept)
    }

    async fn fetch(connection: &mut MySqlConnection, statement: Self::Ours) -> Result<Vec<MySqlRow>, sqlx::Error> {
        connection.fetch_all(statement).await
    }

    async fn change(connection: &mut MySqlConnection, statement: Self::Ours) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(statement).await?.rows_affected())
    }

    async fn check(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        // No statement about savepoints can be prepared.
        connection.execute(sqlx::raw_sql(include_str!("../../sql/mysql/fence_check.sql"))).await.map(drop)
    }

    fn is_over(error: &sqlx::Error) -> bool {
        // ER_SP_DOES_NOT_EXIST
        let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        error.is_some_and(|error| error.number() == 1305)
    }

    fn store_error(error: sqlx::Error) -> StoreError {
        error::store_error(error)
    }
}
