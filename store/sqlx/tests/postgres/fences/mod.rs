//! Fences in PostgreSQL: the behaviours of all databases, and what only PostgreSQL can get wrong.

mod broken;
mod locking;
mod plain;
#[path = "../../common_fences/mod.rs"]
pub(crate) mod suite;
mod timeouts;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::FenceTicket;
use idempotency_sqlx::fence::{Admit, ColumnFence, FenceError, PostgresFences, Written};
use idempotency_sqlx::{PostgresStore, column_fence};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection, Postgres, Row, Transaction};

use crate::support::server;

suite::all_fence_behaviours!(Rig);

/// A schema of one test's own.
pub(crate) struct Rig {
    pub(crate) name: String,
    pub(crate) pool: PgPool,
}

const ACCOUNTS: ColumnFence<Postgres> =
    column_fence!(Postgres, table: "accounts", id: "id", token: "fencing_token", holder: "fencing_holder");

impl Rig {
    /// In a database of this server.
    async fn at(url: &str, name: String) -> Self {
        let mut connection = PgConnection::connect(url).await.unwrap();
        execute(&mut connection, &format!("CREATE SCHEMA {name}")).await;
        // The path in the session is a device of these tests; in operation the role or the database has it.
        let options: PgConnectOptions = url.parse().unwrap();
        let options = options.options([("search_path", &name)]).application_name(&name);
        let pool = PgPoolOptions::new().max_connections(10).connect_with(options).await.unwrap();
        let url = format!("{url}?options=-csearch_path={name}");
        PostgresStore::migrate(&url).await.unwrap();
        let rig = Self { name, pool };
        rig.run(
            "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL,
                fencing_token BIGINT, fencing_holder BYTEA);
            INSERT INTO accounts (id, balance) VALUES (1, 100), (2, 200);",
        )
        .await;
        rig
    }

    pub(crate) async fn run(&self, statements: &str) {
        execute(&mut self.pool.acquire().await.unwrap(), statements).await;
    }

    /// Begins a transaction with this statement.
    pub(crate) async fn begin_with(&self, begin: &'static str) -> Transaction<'static, Postgres> {
        self.pool.begin_with(begin).await.unwrap()
    }

    /// How many wait for a lock.
    pub(crate) async fn waiting(&self) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = $1";
        sqlx::query(sql).bind(&self.name).fetch_one(&self.pool).await.unwrap().get(0)
    }
}

impl suite::Rig for Rig {
    type Database = Postgres;
    type Fences = PostgresFences;

    async fn new() -> Self {
        static DATABASE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = DATABASE.get_or_init(|| server().create_database("fences"));
        Self::at(url, format!("fences_{}", COUNT.fetch_add(1, Ordering::Relaxed))).await
    }
    fn fences(&self) -> PostgresFences {
        PostgresFences::new(self.pool.clone()).lock_timeout(suite::PATIENT)
    }
    fn strict(&self) -> PostgresFences {
        self.fences().admit(Admit::StrictlyNewer)
    }
    async fn begin(&self) -> Transaction<'static, Postgres> {
        self.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await
    }
    async fn execute(connection: &mut PgConnection, sql: &'static str) -> u64 {
        connection.execute(sql).await.unwrap().rows_affected()
    }
    async fn try_execute(connection: &mut PgConnection, sql: &'static str) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(sql).await?.rows_affected())
    }
    async fn number(connection: &mut PgConnection, sql: &'static str) -> i64 {
        connection.fetch_one(sql).await.unwrap().get(0)
    }
    async fn until_waiting(&self) {
        let give_up = std::time::Instant::now() + suite::PATIENT;
        while self.waiting().await == 0 {
            assert!(std::time::Instant::now() < give_up, "nobody waits for a lock");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    async fn open_row(
        connection: &mut PgConnection,
        id: i64,
        ticket: &FenceTicket,
        admit: Admit,
    ) -> Result<Written, FenceError> {
        ACCOUNTS.open(connection, id, ticket, admit).await
    }
}

async fn execute(connection: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
}

#[track_caller]
fn sqlstate<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) -> String {
    result.unwrap_err().as_database_error().unwrap().code().unwrap().into_owned()
}
