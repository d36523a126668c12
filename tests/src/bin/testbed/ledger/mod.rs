//! The ledger: one row for each effect, in a database that several testbeds may share.

mod mysql;
mod postgres;
mod sqlite;

use serde::Serialize;
use tempfile::TempDir;

use crate::error::StartError;
pub(crate) use mysql::MySql;
pub(crate) use postgres::Postgres;
pub(crate) use sqlite::Sqlite;

/// Where effects are written.
#[derive(Clone, Debug)]
pub(crate) enum Ledger {
    Sqlite(Sqlite),
    Postgres(Postgres),
    MySql(MySql),
}

/// What a handler does to the world.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) key: Option<String>,
    pub(crate) route: String,
    pub(crate) resource: Option<String>,
    pub(crate) amount: i64,
    pub(crate) token: Option<u64>,
    pub(crate) attempt: Option<u32>,
    /// What a counter shows after it.
    pub(crate) value: Option<i64>,
}

/// An effect as it stands in the ledger.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) key: Option<String>,
    pub(crate) route: String,
    pub(crate) resource: Option<String>,
    pub(crate) amount: i64,
    pub(crate) token: Option<i64>,
    pub(crate) attempt: Option<i64>,
    pub(crate) process: i64,
    #[serde(skip)]
    pub(crate) value: Option<i64>,
    pub(crate) at: i64,
}

/// A counter as it stands in the ledger; 0 when nobody wrote it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counter {
    pub(crate) value: i64,
    pub(crate) token: Option<i64>,
}

/// A connection to a ledger's database, in a transaction or not.
pub(crate) trait Effects: Send {
    /// Writes an effect and says its number.
    fn insert(&mut self, effect: &Effect) -> impl Future<Output = Result<i64, sqlx::Error>> + Send;

    /// The effects of a key, of a route, or all.
    fn effects(
        &mut self,
        key: Option<&str>,
        route: Option<&str>,
    ) -> impl Future<Output = Result<Vec<Row>, sqlx::Error>> + Send;

    fn counter(&mut self, resource: &str) -> impl Future<Output = Result<Counter, sqlx::Error>> + Send;

    fn set_counter(&mut self, resource: &str, counter: Counter)
    -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

/// Runs on a connection that reads, or on one that writes.
macro_rules! on {
    ($ledger:expr, reader, $connection:ident => $run:expr) => {
        on!(@ $ledger, readers, $connection => $run)
    };
    ($ledger:expr, writer, $connection:ident => $run:expr) => {
        on!(@ $ledger, writer, $connection => $run)
    };
    (@ $ledger:expr, $sqlite:ident, $connection:ident => $run:expr) => {
        match $ledger {
            Ledger::Sqlite(sqlite) => {
                let mut $connection = sqlite.$sqlite.acquire().await?;
                $run
            }
            Ledger::Postgres(postgres) => {
                let mut $connection = postgres.pool.acquire().await?;
                $run
            }
            Ledger::MySql(mysql) => {
                let mut $connection = mysql.pool.acquire().await?;
                $run
            }
        }
    };
}

impl Ledger {
    /// Opens the ledger at `url` and creates its tables where there are none, those of its fences as well.
    pub(crate) async fn open(url: &str) -> Result<Self, StartError> {
        match url.split_once(':') {
            Some(("sqlite", _)) => Sqlite::open(url).await.map(Self::Sqlite),
            Some(("postgres" | "postgresql", _)) => Postgres::open(url).await.map(Self::Postgres),
            Some(("mysql" | "mariadb", _)) => MySql::open(url).await.map(Self::MySql),
            _ => Err(StartError::usage("--ledger", "not a ledger's URL; write sqlite:PATH, postgres://… or mysql://…")),
        }
    }

    /// A ledger in a new file, which goes when the folder is dropped.
    pub(crate) async fn temporary() -> Result<(Self, TempDir), StartError> {
        let folder = tempfile::Builder::new().prefix("testbed-").tempdir().map_err(StartError::TemporaryLedger)?;
        let path = folder.path().join("ledger.sqlite");
        Ok((Self::open(&format!("sqlite:{}", path.display())).await?, folder))
    }

    /// Writes an effect and says its number.
    pub(crate) async fn write(&self, effect: &Effect) -> Result<i64, sqlx::Error> {
        on!(self, writer, connection => connection.insert(effect).await)
    }

    /// The effects of a key, of a route, or all.
    pub(crate) async fn effects(&self, key: Option<&str>, route: Option<&str>) -> Result<Vec<Row>, sqlx::Error> {
        on!(self, reader, connection => connection.effects(key, route).await)
    }

    pub(crate) async fn counter(&self, resource: &str) -> Result<Counter, sqlx::Error> {
        on!(self, reader, connection => connection.counter(resource).await)
    }

    /// Writes what a counter shows, and the effect that made it so, without looking at anything.
    pub(crate) async fn overwrite(&self, counter: Counter, effect: &Effect) -> Result<i64, sqlx::Error> {
        let resource = effect.resource.as_deref().unwrap_or_default();
        on!(self, writer, connection => {
            connection.set_counter(resource, counter).await?;
            connection.insert(effect).await
        })
    }
}
