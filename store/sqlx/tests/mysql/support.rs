//! A store in a private MariaDB, and what tests do with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{OpenError, Timestamp};
use idempotency_sqlx::{MySqlOptions, MySqlStore};
use idempotency_testbed::servers::MariaDb;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Row};

use crate::common::{Database, Harm, Server};
use idempotency_testbed::requests::PATIENT;

/// One server for all tests of this program. It ends with the process.
pub(crate) fn server() -> &'static MariaDb {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    SERVER.get_or_init(MariaDb::start)
}

/// A database, with nothing of other tests in it, and a clock for the stores there.
pub(crate) struct Place {
    url: String,
    pub(crate) clock: ManualClock,
}

impl Place {
    pub(crate) fn at(url: String) -> Self {
        Self { url, clock: ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Settings with the clock of this place.
    pub(crate) fn options(&self) -> MySqlOptions {
        self.real_options().clock(self.clock.clone())
    }

    /// Settings with the clock that a store has in operation.
    pub(crate) fn real_options(&self) -> MySqlOptions {
        MySqlStore::options(&self.url).wait(PATIENT)
    }

    /// A pool of the program's own: its sessions are as the server makes them, at REPEATABLE READ.
    pub(crate) fn pool(&self) -> MySqlPool {
        self.pool_that_waits(PATIENT)
    }

    fn pool_that_waits(&self, wait: Duration) -> MySqlPool {
        MySqlPoolOptions::new().max_connections(20).acquire_timeout(wait).connect_lazy(&self.url).unwrap()
    }
}

impl Database for Place {
    type Store = MySqlStore;

    const SCHEMA: &str = MySqlStore::SCHEMA;
    const DESCRIBE: &str = "
        SELECT CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, collation_name, column_key)
            FROM information_schema.columns WHERE table_schema = DATABASE()
        UNION ALL
        SELECT CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name, non_unique)
            FROM information_schema.statistics WHERE table_schema = DATABASE()
        UNION ALL
        SELECT CONCAT_WS(' ', table_name, engine) FROM information_schema.tables WHERE table_schema = DATABASE()
        UNION ALL
        SELECT CONCAT('version ', version) FROM idempotency_migrations
        ORDER BY 1";
    const FIXTURE: &str = include_str!("../fixtures/records_v1_mysql.sql");
    const VERSION: u32 = 3;

    async fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::at(server().create_database(&format!("place_{}", COUNT.fetch_add(1, Ordering::Relaxed))))
    }
    fn clock(&self) -> &ManualClock {
        &self.clock
    }
    async fn migrate(&self) -> Result<(), OpenError> {
        self.options().migrate().await
    }
    async fn open(&self) -> Result<MySqlStore, OpenError> {
        self.options().open().await
    }
    async fn real_stores(&self) -> Vec<MySqlStore> {
        self.stores_that_wait(PATIENT).await
    }
    async fn execute(&self, statements: &str) {
        Self::execute_on(&mut self.connection().await, statements).await;
    }
    async fn texts(&self, statement: &str) -> Vec<String> {
        // Not prepared, so that numbers come as text too.
        let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut self.connection().await).await;
        rows.unwrap().iter().map(|row| row.get_unchecked(0)).collect()
    }
    fn bytes(digits: &str) -> String {
        format!("x'{digits}'")
    }
}

impl Server for Place {
    type Connection = MySqlConnection;
    type Machine = MariaDb;

    async fn connection(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url).await.unwrap()
    }
    async fn execute_on(connection: &mut MySqlConnection, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
    }
    fn start() -> MariaDb {
        MariaDb::start()
    }
    fn on(machine: &MariaDb) -> Self {
        Self::at(machine.create_database("store"))
    }
    async fn stores_that_wait(&self, wait: Duration) -> Vec<MySqlStore> {
        let own = self.real_options().connections(20).wait(wait).open().await.unwrap();
        vec![own, MySqlStore::from_pool(self.pool_that_waits(wait)).await.unwrap()]
    }
    fn harm(machine: &mut MariaDb, harm: Harm) {
        match harm {
            Harm::Kill => machine.kill(),
            Harm::Restart => machine.restart(),
            Harm::Pause => machine.pause(),
            Harm::Resume => machine.resume(),
        }
    }
}
