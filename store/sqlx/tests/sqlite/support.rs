//! A store in a temporary file, and what tests do with it.

use std::path::PathBuf;
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{OpenError, Timestamp};
use idempotency_sqlx::{SqliteOptions, SqliteStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Row, SqliteConnection};
use tempfile::TempDir;

use crate::common::Database;
pub(crate) use idempotency_testbed::requests::*;

/// A file with tables, and a clock for the stores on it.
pub(crate) struct File {
    folder: TempDir,
    pub(crate) clock: ManualClock,
}

impl File {
    pub(crate) async fn migrated() -> Self {
        let file = Self::missing();
        file.options().busy_timeout(PATIENT).migrate().await.unwrap();
        file
    }

    pub(crate) fn missing() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store.sqlite")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// Settings with the clock of this file.
    pub(crate) fn options(&self) -> SqliteOptions {
        SqliteStore::options(&self.url()).clock(self.clock.clone())
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        self.options().busy_timeout(PATIENT).open().await.unwrap()
    }

    /// A store with the clock that it has in operation.
    pub(crate) async fn real_store(&self) -> SqliteStore {
        SqliteStore::options(&self.url()).busy_timeout(PATIENT).open().await.unwrap()
    }

    /// A connection of somebody else, who waits for nothing.
    pub(crate) async fn connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path()).busy_timeout(Duration::ZERO);
        options.create_if_missing(true).connect().await.unwrap()
    }

    pub(crate) async fn execute(&self, statements: &str) {
        let statements = sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned()));
        statements.execute(&mut self.connection().await).await.unwrap();
    }

    /// Whether these bytes are in the database or in its log.
    pub(crate) fn holds(&self, marker: &[u8]) -> bool {
        std::fs::read_dir(self.folder.path()).unwrap().any(|file| {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            bytes.windows(marker.len()).any(|window| window == marker)
        })
    }
}

impl Database for File {
    type Store = SqliteStore;

    const SCHEMA: &str = SqliteStore::SCHEMA;
    const DESCRIBE: &str = "
        SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') FROM sqlite_schema
        UNION ALL
        SELECT 'version ' || version FROM idempotency_migrations
        ORDER BY 1";
    const FIXTURE: &str = include_str!("../fixtures/records_v1.sql");
    const VERSION: u32 = 3;

    async fn empty() -> Self {
        Self::missing()
    }
    fn clock(&self) -> &ManualClock {
        &self.clock
    }
    async fn migrate(&self) -> Result<(), OpenError> {
        self.options().busy_timeout(PATIENT).migrate().await
    }
    async fn open(&self) -> Result<SqliteStore, OpenError> {
        self.options().busy_timeout(PATIENT).open().await
    }
    async fn real_stores(&self) -> Vec<SqliteStore> {
        vec![self.real_store().await, self.real_store().await]
    }
    async fn execute(&self, statements: &str) {
        Self::execute(self, statements).await;
    }
    async fn texts(&self, statement: &str) -> Vec<String> {
        let statement = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned()));
        let rows = statement.fetch_all(&mut self.connection().await).await.unwrap();
        rows.iter().map(|row| row.get_unchecked(0)).collect()
    }
    fn bytes(digits: &str) -> String {
        format!("x'{digits}'")
    }
}
