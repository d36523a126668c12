//! A store in a private server, and what tests do with it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idempotency::time::ManualClock;
use idempotency::{OpenError, Timestamp};
use idempotency_sqlx::{PostgresOptions, PostgresStore, Statements};
use idempotency_testbed::servers::Postgres;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::common::{Database, Harm, Server};
pub(crate) use idempotency_testbed::requests::*;

/// One server for all tests of this program. It ends with the process.
pub(crate) fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start)
}

/// A place for the tables, with nothing of other tests in it, and a clock for the stores there.
pub(crate) struct Place {
    url: String,
    pub(crate) clock: ManualClock,
}

impl Place {
    /// A schema in a database that all tests share: making a database takes longer than most of them. The session's
    /// `search_path` in the URL is a device of these tests; in operation the role or the database has it.
    pub(crate) async fn empty() -> Self {
        static DATABASE: OnceLock<String> = OnceLock::new();
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = DATABASE.get_or_init(|| server().create_database("places"));
        let schema = format!("place_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let place = Self::at(format!("{url}?options=-csearch_path={schema}"));
        place.execute(&format!("CREATE SCHEMA {schema};")).await;
        place
    }

    pub(crate) async fn migrated() -> Self {
        let place = Self::empty().await;
        place.options().migrate().await.unwrap();
        place
    }

    pub(crate) fn at(url: String) -> Self {
        Self { url, clock: ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000)) }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Settings with the clock of this place.
    pub(crate) fn options(&self) -> PostgresOptions {
        self.real_options().clock(self.clock.clone())
    }

    /// Settings with the clock that a store has in operation.
    pub(crate) fn real_options(&self) -> PostgresOptions {
        PostgresStore::options(&self.url).wait(PATIENT)
    }

    pub(crate) async fn store(&self) -> PostgresStore {
        self.options().open().await.unwrap()
    }

    /// A store of each kind, in operation.
    pub(crate) async fn real_stores(&self) -> [PostgresStore; 2] {
        let direct = self.real_options().statements(Statements::PreparedOnce);
        [self.real_options().open().await.unwrap(), direct.open().await.unwrap()]
    }

    /// A connection of somebody else.
    pub(crate) async fn connection(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn execute(&self, statements: &str) {
        execute(&mut self.connection().await, statements).await;
    }
}

pub(crate) async fn execute(connection: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(connection).await.unwrap();
}

impl Database for Place {
    type Store = PostgresStore;

    const SCHEMA: &str = PostgresStore::SCHEMA;
    /// Columns, indexes and constraints.
    const DESCRIBE: &str = "
        SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable) FROM information_schema.columns
            WHERE table_schema = current_schema
        UNION ALL
        SELECT replace(indexdef, current_schema, '') FROM pg_indexes WHERE schemaname = current_schema
        UNION ALL
        SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = current_schema::regnamespace
        UNION ALL
        SELECT 'version ' || version FROM idempotency_migrations
        ORDER BY 1";
    const FIXTURE: &str = include_str!("../fixtures/records_v1_postgres.sql");
    const VERSION: u32 = 4;

    async fn empty() -> Self {
        Self::empty().await
    }
    fn clock(&self) -> &ManualClock {
        &self.clock
    }
    async fn migrate(&self) -> Result<(), OpenError> {
        self.options().migrate().await
    }
    async fn open(&self) -> Result<PostgresStore, OpenError> {
        self.options().open().await
    }
    async fn two_stores(&self) -> [PostgresStore; 2] {
        let direct = self.options().statements(Statements::PreparedOnce);
        [direct.open().await.unwrap(), self.options().open().await.unwrap()]
    }
    async fn real_stores(&self) -> Vec<PostgresStore> {
        self.real_stores().await.into()
    }
    async fn execute(&self, statements: &str) {
        self.execute(statements).await;
    }
    async fn texts(&self, statement: &str) -> Vec<String> {
        // Not prepared, so that numbers come as text too.
        let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut self.connection().await).await;
        rows.unwrap().iter().map(|row| row.get_unchecked(0)).collect()
    }
    fn bytes(digits: &str) -> String {
        format!("'\\x{digits}'")
    }
}

impl Server for Place {
    type Connection = PgConnection;
    type Machine = Postgres;

    async fn connection(&self) -> PgConnection {
        self.connection().await
    }
    async fn execute_on(connection: &mut PgConnection, statements: &str) {
        execute(connection, statements).await;
    }
    fn start() -> Postgres {
        Postgres::start()
    }
    fn on(machine: &Postgres) -> Self {
        Self::at(machine.create_database("store"))
    }
    async fn stores_that_wait(&self, wait: Duration) -> Vec<PostgresStore> {
        let options = self.real_options().wait(wait);
        let direct = options.clone().statements(Statements::PreparedOnce);
        vec![options.open().await.unwrap(), direct.open().await.unwrap()]
    }
    fn harm(machine: &mut Postgres, harm: Harm) {
        match harm {
            Harm::Kill => machine.kill(),
            Harm::Restart => machine.restart(),
            Harm::Pause => machine.pause(),
            Harm::Resume => machine.resume(),
        }
    }
}
