//! Fences in SQLite.

use std::sync::Arc;
use std::time::Duration;

use idempotency::StoreError;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{Executor, Sqlite};

use super::dialect::{Dialect, FenceDatabase};
use super::opening::Desk;
use super::{Admit, Fences};
use crate::sqlite::error;

/// Fences in a SQLite file, over a pool of the program's own. Clones share it.
///
/// A transaction takes the file's one write lock when it begins (`BEGIN IMMEDIATE`), so it waits for every other writer
/// of the file, and everybody waits for it. A process that is stopped in the middle keeps all others out until it goes
/// on or dies: there is no server to end its transaction, and no timeout helps but to give up waiting. Do no waiting
/// inside.
///
/// Isolation is serializable always.
#[derive(Clone, Debug)]
pub struct SqliteFences {
    desk: Desk<Sqlite>,
}

impl SqliteFences {
    /// Fences in the file of this pool. [`SqliteStore::migrate`](crate::SqliteStore::migrate) makes the tables.
    #[must_use]
    pub fn new(pool: SqlitePool) -> Self {
        let begin =
            concat!(include_str!("../../sql/sqlite/begin.sql"), include_str!("../../sql/sqlite/fence_savepoint.sql"));
        let begin = Arc::from(begin);
        let patience = Duration::from_secs(5);
        Self { desk: Desk { pool, begin, admit: Admit::default(), patience, kept: true, timeline: None } }
    }

    /// Which tokens are admitted.
    ///
    /// Default: [`Admit::SameOrNewer`].
    #[must_use]
    pub fn admit(mut self, admit: Admit) -> Self {
        self.desk.admit = admit;
        self
    }

    /// How long an opening waits for the file's write lock. Each try also waits for the `busy_timeout` of the
    /// connection, 5 s unless the pool was made with another one: SQLite's own waiting is unfair, so a short one and
    /// this patience is better.
    ///
    /// Default: 5 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.desk.patience = patience;
        self
    }
}

impl Fences for SqliteFences {
    type Database = Sqlite;

    fn desk(&self) -> &Desk<Sqlite> {
        &self.desk
    }
}

impl FenceDatabase for Sqlite {}

impl Dialect for Sqlite {
    type Ours = sqlx::query::Query<'static, Self, SqliteArguments>;

    const ADVANCE: Option<&'static str> = Some(include_str!("../../sql/sqlite/fence_advance.sql"));
    const LOCK: &'static str = include_str!("../../sql/sqlite/fence_read.sql");
    // There is one writer, and it is this transaction.
    const LOCK_SHARED: &'static str = Self::LOCK;
    const WRITE: &'static str = include_str!("../../sql/sqlite/fence_write.sql");
    const INSERT: &'static str = include_str!("../../sql/sqlite/fence_insert.sql");
    const SHARE_WATERMARK: &'static str = include_str!("../../sql/sqlite/fence_watermark.sql");
    const RAISE_WATERMARK: &'static str = include_str!("../../sql/sqlite/fence_raise_watermark.sql");
    const STALE_FENCES: &'static str = include_str!("../../sql/sqlite/fence_stale.sql");
    const DELETE_FENCE: &'static str = include_str!("../../sql/sqlite/fence_delete.sql");
    const ONCE: &'static str = include_str!("../../sql/sqlite/fence_once.sql");
    const FORGET_ONCE: &'static str = include_str!("../../sql/sqlite/fence_forget_once.sql");
    // Waiting longer between two tries never finds the moment between two transactions of another process.
    const LONGEST_PAUSE: Duration = Duration::from_micros(1300);

    fn statement(sql: &'static str, kept: bool) -> Self::Ours {
        sqlx::query(sql).persistent(kept)
    }

    async fn fetch(connection: &mut SqliteConnection, statement: Self::Ours) -> Result<Vec<SqliteRow>, sqlx::Error> {
        connection.fetch_all(statement).await
    }

    async fn change(connection: &mut SqliteConnection, statement: Self::Ours) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(statement).await?.rows_affected())
    }

    async fn check(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        connection.execute(sqlx::raw_sql(include_str!("../../sql/sqlite/fence_check.sql"))).await.map(drop)
    }

    fn is_over(error: &sqlx::Error) -> bool {
        error::is_misuse(error)
    }

    fn store_error(error: sqlx::Error) -> StoreError {
        error::store_error(error)
    }
}
