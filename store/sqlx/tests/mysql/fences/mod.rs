//! Fences in MariaDB: the behaviours of all databases, and what only MySQL and MariaDB can get wrong.

mod facts;
mod locking;
#[path = "../../common_fences/mod.rs"]
pub(crate) mod suite;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::FenceTicket;
use idempotency_sqlx::fence::{Admit, ColumnFence, FenceError, MySqlFences, Written};
use idempotency_sqlx::{MySqlStore, column_fence};
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{Executor, MySql, Row, Transaction};
use tokio::sync::Mutex;

use crate::support::server;

suite::all_fence_behaviours!(Rig);

/// A database of one test's own.
pub(crate) struct Rig {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) pool: MySqlPool,
}

const ACCOUNTS: ColumnFence<MySql> =
    column_fence!(MySql, table: "accounts", id: "id", token: "fencing_token", holder: "fencing_holder");

impl Rig {
    pub(crate) async fn run(&self, statements: &'static str) {
        sqlx::raw_sql(statements).execute(&self.pool).await.unwrap();
    }

    /// Begins a transaction with these statements.
    pub(crate) async fn begin_with(&self, begin: &'static str) -> Transaction<'static, MySql> {
        self.pool.begin_with(begin).await.unwrap()
    }

    /// Until so many wait for a lock.
    pub(crate) async fn until_so_many_wait(&self, expected: i64) {
        let sql = "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.innodb_trx AS trx
            JOIN information_schema.processlist AS process ON process.id = trx.trx_mysql_thread_id
            WHERE trx.trx_state = 'LOCK WAIT' AND process.db = ?";
        static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
        let give_up = std::time::Instant::now() + suite::PATIENT;
        loop {
            // What the server says of it is of the last time that it had not been asked for 100 ms.
            let _turn = ONE_AT_A_TIME.lock().await;
            tokio::time::sleep(Duration::from_millis(110)).await;
            let waiting: i64 = sqlx::query(sql).bind(&self.name).fetch_one(&self.pool).await.unwrap().get(0);
            if waiting >= expected {
                return;
            }
            assert!(std::time::Instant::now() < give_up, "nobody waits for a lock");
        }
    }
}

impl suite::Rig for Rig {
    type Database = MySql;
    type Fences = MySqlFences;

    async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fences_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let url = server().create_database(&name);
        MySqlStore::migrate(&url).await.unwrap();
        let pool = MySqlPoolOptions::new().max_connections(10).connect(&url).await.unwrap();
        let rig = Self { name, url, pool };
        rig.run(
            "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL,
                fencing_token BIGINT, fencing_holder BINARY(16)) ENGINE = InnoDB;
            INSERT INTO accounts (id, balance) VALUES (1, 100), (2, 200);",
        )
        .await;
        rig
    }
    fn fences(&self) -> MySqlFences {
        MySqlFences::new(self.pool.clone()).patience(suite::PATIENT)
    }
    fn strict(&self) -> MySqlFences {
        self.fences().admit(Admit::StrictlyNewer)
    }
    async fn begin(&self) -> Transaction<'static, MySql> {
        self.begin_with("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION").await
    }
    async fn execute(connection: &mut MySqlConnection, sql: &'static str) -> u64 {
        Self::try_execute(connection, sql).await.unwrap()
    }
    async fn try_execute(connection: &mut MySqlConnection, sql: &'static str) -> Result<u64, sqlx::Error> {
        Ok(connection.execute(sqlx::raw_sql(sql)).await?.rows_affected())
    }
    async fn number(connection: &mut MySqlConnection, sql: &'static str) -> i64 {
        sqlx::query(sql).fetch_one(connection).await.unwrap().get(0)
    }
    async fn until_waiting(&self) {
        self.until_so_many_wait(1).await;
    }
    async fn open_row(
        connection: &mut MySqlConnection,
        id: i64,
        ticket: &FenceTicket,
        admit: Admit,
    ) -> Result<Written, FenceError> {
        ACCOUNTS.open(connection, id, ticket, admit).await
    }
}

#[track_caller]
fn number_of<T: std::fmt::Debug>(result: Result<T, sqlx::Error>) -> u16 {
    let error = result.unwrap_err();
    error.as_database_error().unwrap().downcast_ref::<sqlx::mysql::MySqlDatabaseError>().number()
}
