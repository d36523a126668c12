//! The ledger: one row for each effect, in a database that several testbeds may share.

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, FromRow, Row as _};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::error::StartError;

/// Where effects are written.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Database);

#[derive(Clone, Debug)]
enum Database {
    /// One writer, because SQLite has one anyway and queues nobody; readers are not held up by it.
    Sqlite { writer: SqlitePool, readers: SqlitePool },
}

/// What a handler does to the world.
#[derive(Debug)]
pub(crate) struct Effect {
    pub(crate) key: Option<String>,
    pub(crate) route: String,
    pub(crate) resource: Option<String>,
    pub(crate) amount: i64,
    pub(crate) token: Option<u64>,
    pub(crate) attempt: Option<u32>,
}

/// An effect as it stands in the ledger.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    seq: i64,
    key: Option<String>,
    route: String,
    resource: Option<String>,
    amount: i64,
    token: Option<i64>,
    attempt: Option<i64>,
    process: i64,
    at: i64,
}

impl FromRow<'_, SqliteRow> for Row {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            key: row.try_get("key")?,
            route: row.try_get("route")?,
            resource: row.try_get("resource")?,
            amount: row.try_get("amount")?,
            token: row.try_get("token")?,
            attempt: row.try_get("attempt")?,
            process: row.try_get("process")?,
            at: row.try_get("at")?,
        })
    }
}

impl Ledger {
    /// Opens the ledger at `url` and creates its table if there is none.
    pub(crate) async fn open(url: &str) -> Result<Self, StartError> {
        match url.split_once(':') {
            Some(("sqlite", _)) => Self::open_sqlite(url).await,
            Some(("postgres" | "postgresql", _)) => Err(StartError::NotYet("a ledger in PostgreSQL")),
            Some(("mysql" | "mariadb", _)) => Err(StartError::NotYet("a ledger in MySQL")),
            _ => Err(StartError::usage("--ledger", "not a ledger's URL; write sqlite:PATH")),
        }
    }

    /// A ledger in a new file, which goes when the folder is dropped.
    pub(crate) async fn temporary() -> Result<(Self, TempDir), StartError> {
        let folder = tempfile::Builder::new().prefix("testbed-").tempdir().map_err(StartError::TemporaryLedger)?;
        let path = folder.path().join("ledger.sqlite");
        Ok((Self::open(&format!("sqlite:{}", path.display())).await?, folder))
    }

    async fn open_sqlite(url: &str) -> Result<Self, StartError> {
        let options = SqliteConnectOptions::from_str(url).map_err(StartError::Ledger)?;
        if options.get_filename().as_os_str().is_empty() || url.contains(":memory:") {
            return Err(StartError::usage("--ledger", "a ledger needs a file; write sqlite:PATH"));
        }
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A killed process loses nothing by this.
            .synchronous(SqliteSynchronous::Normal)
            // Another testbed may be stopped while it writes.
            .busy_timeout(Duration::from_secs(30))
            .disable_statement_logging();
        let pool = |most| SqlitePoolOptions::new().max_connections(most).test_before_acquire(false);
        let writer = pool(1).connect_lazy_with(options.clone());
        create(&writer).await.map_err(StartError::Ledger)?;
        Ok(Self(Database::Sqlite { writer, readers: pool(2).connect_lazy_with(options) }))
    }

    /// Writes an effect and says its number.
    pub(crate) async fn write(&self, effect: &Effect) -> Result<i64, sqlx::Error> {
        let Database::Sqlite { writer, .. } = &self.0;
        let insert = sqlx::query(include_str!("../../../sql/sqlite/insert_effect.sql"))
            .bind(&effect.key)
            .bind(&effect.route)
            .bind(&effect.resource)
            .bind(effect.amount)
            .bind(effect.token.map(u64::cast_signed))
            .bind(effect.attempt)
            .bind(std::process::id());
        Ok(insert.execute(writer).await?.last_insert_rowid())
    }

    /// The effects of a key, of a route, or all.
    pub(crate) async fn effects(&self, key: Option<&str>, route: Option<&str>) -> Result<Vec<Row>, sqlx::Error> {
        let Database::Sqlite { readers, .. } = &self.0;
        let select = match key {
            Some(key) => sqlx::query_as(include_str!("../../../sql/sqlite/effects_of_key.sql")).bind(key),
            None => sqlx::query_as(include_str!("../../../sql/sqlite/all_effects.sql")),
        };
        select.bind(route).fetch_all(readers).await
    }
}

/// Creates the table. Two testbeds may begin at once, and while the journal mode changes SQLite does not wait for its
/// lock, so this does.
async fn create(writer: &SqlitePool) -> Result<(), sqlx::Error> {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        match sqlx::raw_sql(include_str!("../../../sql/sqlite/create_effects.sql")).execute(writer).await {
            Err(error) if is_busy(&error) && Instant::now() < give_up => sleep(Duration::from_millis(20)).await,
            result => return result.map(drop),
        }
    }
}

/// Somebody else has the file's lock. Extended codes have the primary one in their last byte.
fn is_busy(error: &sqlx::Error) -> bool {
    const BUSY: i32 = 5;
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xFF == BUSY)
}
