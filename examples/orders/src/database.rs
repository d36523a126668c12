//! The database: a named one, or a private one.

use std::time::Duration;

use idempotency_sqlx::PostgresStore;
use idempotency_testbed::servers::Postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Transaction};

use crate::Failure;

/// Where the run takes place.
pub(crate) struct Database {
    pub(crate) url: String,
    /// Stopped and removed with this.
    _private: Option<Postgres>,
}

impl Database {
    /// The named one, or a PostgreSQL of its own in a temporary folder. Missing tables are made.
    pub(crate) async fn open(url: Option<String>) -> Result<Self, Failure> {
        let (url, private) = match url {
            Some(url) => (url, None),
            None => {
                let postgres = private().await?;
                (postgres.create_database("orders"), Some(postgres))
            }
        };
        // The private server ends with this, whatever happens next.
        let database = Self { url, _private: private };
        PostgresStore::migrate(&database.url).await?; // for the fenced lease
        let pool = connect(&database.url, "orders").await?;
        pool.execute(include_str!("../sql/tables.sql")).await?;
        pool.close().await;
        Ok(database)
    }
}

/// A pool whose sessions are named, to be found in `pg_stat_activity`.
pub(crate) async fn connect(url: &str, name: &str) -> Result<PgPool, Failure> {
    let options = url.parse::<PgConnectOptions>()?.application_name(name);
    Ok(PgPoolOptions::new().max_connections(4).connect_with(options).await?)
}

/// Begins a transaction in which nobody waits long for a lock, and that the server ends when its process says nothing any more.
/// Both settings are of this transaction alone.
pub(crate) async fn begin(
    pool: &PgPool,
    timeout: Duration,
) -> Result<Transaction<'static, sqlx::Postgres>, sqlx::Error> {
    let (idle, lock) = (timeout.as_millis().max(1), (timeout / 4).as_millis().max(1));
    let mut transaction = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    // SET takes no parameters. Two numbers of ours are written into it.
    let settings = format!(
        "SET LOCAL lock_timeout = '{lock}ms';
         SET LOCAL idle_in_transaction_session_timeout = '{idle}ms'"
    );
    transaction.execute(AssertSqlSafe(settings)).await?;
    Ok(transaction)
}

/// Whether the server has answered with this SQLSTATE.
pub(crate) fn has_state(error: &sqlx::Error, state: &str) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == state)
}

/// Whether the server has ended this session, or its transaction, meanwhile. What was not committed before was rolled back.
pub(crate) fn is_cut_off(error: &sqlx::Error) -> bool {
    // idle_in_transaction_session_timeout; or nothing but a closed connection
    has_state(error, "25P03") || matches!(error, sqlx::Error::Io(_))
}

/// Panics of the rig are errors here: it says which package is missing.
async fn private() -> Result<Postgres, Failure> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let started = tokio::task::spawn_blocking(Postgres::start).await;
    std::panic::set_hook(hook);
    started.map_err(|error| {
        let panic = error.into_panic();
        let said = panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|&said| said.into()));
        said.unwrap_or_else(|| "PostgreSQL cannot be started".into()).into()
    })
}
