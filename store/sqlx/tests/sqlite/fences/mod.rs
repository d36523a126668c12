//! Fences in SQLite: the behaviours of all databases, and what only SQLite can get wrong.

mod facts;
#[path = "../../common_fences/mod.rs"]
pub(crate) mod suite;

use std::time::Duration;

use idempotency::{FenceTicket, StoreErrorKind};
use idempotency_sqlx::fence::{Admit, ColumnFence, FenceError, Fences, SqliteFences, Written};
use idempotency_sqlx::{SqliteStore, column_fence};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Executor, Row, Sqlite, SqliteConnection, Transaction};
use tempfile::TempDir;

suite::all_fence_behaviours!(Rig);

/// A file of one test's own.
pub(crate) struct Rig {
    pub(crate) pool: SqlitePool,
    pub(crate) options: SqliteConnectOptions,
    _folder: TempDir,
}

const ACCOUNTS: ColumnFence<Sqlite> =
    column_fence!(Sqlite, table: "accounts", id: "id", token: "fencing_token", holder: "fencing_holder");

impl suite::Rig for Rig {
    type Database = Sqlite;
    type Fences = SqliteFences;

    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.sqlite");
        SqliteStore::migrate(&format!("sqlite:{}", path.display())).await.unwrap();
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::ZERO);
        let pool = SqlitePoolOptions::new().max_connections(10).connect_with(options.clone()).await.unwrap();
        let rig = Self { pool, options, _folder: folder };
        let tables = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL,
                fencing_token INTEGER, fencing_holder BLOB) STRICT;
            INSERT INTO accounts (id, balance) VALUES (1, 100), (2, 200);";
        sqlx::raw_sql(tables).execute(&rig.pool).await.unwrap();
        rig
    }
    fn fences(&self) -> SqliteFences {
        SqliteFences::new(self.pool.clone()).patience(suite::PATIENT)
    }
    fn strict(&self) -> SqliteFences {
        self.fences().admit(Admit::StrictlyNewer)
    }
    async fn begin(&self) -> Transaction<'static, Sqlite> {
        loop {
            if let Ok(transaction) = self.pool.begin_with("BEGIN IMMEDIATE").await {
                return transaction;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    async fn execute(connection: &mut SqliteConnection, sql: &'static str) -> u64 {
        Self::try_execute(connection, sql).await.unwrap()
    }
    async fn try_execute(connection: &mut SqliteConnection, sql: &'static str) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(sql).await?.rows_affected())
    }
    async fn number(connection: &mut SqliteConnection, sql: &'static str) -> i64 {
        connection.fetch_one(sql).await.unwrap().get(0)
    }
    /// Nobody can see who waits for a file; that it is taken, everybody can.
    async fn until_waiting(&self) {
        let impatient = SqliteFences::new(self.pool.clone()).patience(Duration::ZERO);
        match impatient.open(&suite::resource("is it taken?")).await {
            Err(FenceError::Store(error)) if error.kind() == StoreErrorKind::Busy => {}
            answer => panic!("nobody has the file: {answer:?}"),
        }
    }
    async fn open_row(
        connection: &mut SqliteConnection,
        id: i64,
        ticket: &FenceTicket,
        admit: Admit,
    ) -> Result<Written, FenceError> {
        ACCOUNTS.open(connection, id, ticket, admit).await
    }
}
