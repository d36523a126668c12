//! The settings of a [`MySqlStore`].

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idempotency::{Clock, OpenError};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor};

use super::db::Db;
use super::{MySqlStore, schema, sql};
use crate::lending::{FRESH, Lending, Owner};

/// How a [`MySqlStore`] is opened: [`MySqlStore::options`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct MySqlOptions {
    url: String,
    wait: Duration,
    connections: u32,
    clock: Option<Arc<dyn Clock>>,
}

impl MySqlOptions {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.into(), wait: Duration::from_secs(1), connections: 10, clock: None }
    }

    /// How long an operation waits for a connection, a new one included, before it answers
    /// [`Unavailable`](idempotency::StoreErrorKind::Unavailable).
    ///
    /// Default: 1 s, the store timeout of a layer. Longer than that timeout is pointless: the claimer has
    /// given up by then. Much shorter, and a burst of claims fails where it could have queued.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How many connections there are at most, at least 1.
    ///
    /// Default: 10. With fewer, claims queue behind each other; with more times the number of replicas than the server's
    /// `max_connections`, some get none.
    pub fn connections(self, connections: u32) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// For tests: this clock in place of the server's. A [`ManualClock`](idempotency::time::ManualClock) moves
    /// when it is told to.
    ///
    /// Default: the server's own, read in the statement that decides. All stores on one database must have the same:
    /// two clocks apart by more than a lease let two attempts run at once.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Opens the store. Creates no tables.
    ///
    /// # Errors
    /// - [`OpenError::Url`]: not `mysql://…` or `mariadb://…`, not one that sqlx understands, or one that names no database;
    /// - [`OpenError::Schema`]: no tables, or those of an older release: [`migrate`](Self::migrate) first;
    /// - [`OpenError::SchemaTooNew`]: the tables of a newer release;
    /// - [`OpenError::Store`]: no server, no database, no right to use it; of kind [`Timeout`](idempotency::StoreErrorKind::Timeout) a server that
    ///   is connected to and then answers nothing for five seconds.
    ///
    /// # Panics
    /// Outside a tokio runtime whose time is enabled.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn open(self) -> Result<MySqlStore, OpenError> {
        let connections = Lending::new(self.pool()?, Owner::Store);
        let db = Db { connections, clock: self.clock };
        schema::check(db.connections.pool()).await?;
        Ok(MySqlStore::new(db))
    }

    /// Makes the tables, or brings older ones up to date. Does nothing where nothing is to be done, and two processes
    /// may do it at once.
    ///
    /// # Errors
    /// As [`open`](Self::open), without [`OpenError::Schema`]. Where tables are to be made, and this process or another one is at it, it ends
    /// with [`Timeout`](idempotency::StoreErrorKind::Timeout) after ten minutes.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Cancel safe: what was not made is made the next time, and until then [`open`](Self::open) answers
    /// [`OpenError::Schema`].
    pub async fn migrate(self) -> Result<(), OpenError> {
        let pool = self.connections(1).pool()?;
        let migrated = schema::migrate(&pool).await;
        pool.close().await;
        migrated
    }

    fn pool(&self) -> Result<MySqlPool, OpenError> {
        if !["mysql://", "mariadb://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(OpenError::Url("a MySQL store's URL is `mysql://USER@HOST/DATABASE`".into()));
        }
        // What sqlx says of it names no password: it tells what is wrong, not what it was given.
        let options = MySqlConnectOptions::from_str(&self.url).map_err(|error| OpenError::Url(error.to_string()))?;
        if options.get_database().is_none() {
            return Err(OpenError::Url("it names no database".into()));
        }
        Ok(MySqlPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.wait)
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(sqlx::raw_sql(sql::CONNECT)).await.map(drop) })
            })
            // A ping before every use costs as much as a read. One that nobody used for a while may be dead.
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for >= FRESH {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options.disable_statement_logging()))
    }
}

impl std::fmt::Debug for MySqlOptions {
    // Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlOptions")
            .field("wait", &self.wait)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}
