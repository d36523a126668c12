//! The settings of a [`PostgresStore`].

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idempotency::{Clock, OpenError};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};

use super::db::Db;
use super::{PostgresStore, group, schema};
use crate::lending::{FRESH, Owner};

/// How a [`PostgresStore`] is opened: [`PostgresStore::options`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct PostgresOptions {
    url: String,
    wait: Duration,
    connections: u32,
    statements: Statements,
    clock: Option<Arc<dyn Clock>>,
}

impl PostgresOptions {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            wait: Duration::from_secs(1),
            connections: 10,
            statements: Statements::InTransactions,
            clock: None,
        }
    }

    /// How long an operation waits for a connection, a new one included, before it answers
    /// [`Unavailable`](idempotency::StoreErrorKind::Unavailable).
    ///
    /// A claim or a completion that first waited for others to be served waits twice as long at most.
    ///
    /// Default: 1 s, the store timeout of a layer. Longer than that timeout is pointless: the claimer has
    /// given up by then. Much shorter, and a burst of claims fails where it could have queued.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How many connections there are at most, at least 1. Each is a process of the server, or a place at the proxy.
    ///
    /// Default: 10. With fewer, claims queue behind each other; with more times the number of replicas than the server's
    /// `max_connections`, some get none.
    pub fn connections(self, connections: u32) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Who may be between the store and the server.
    ///
    /// Default: [`Statements::InTransactions`], which is right everywhere and slower.
    /// [`Statements::PreparedOnce`] through a proxy that pools transactions fails, at once or under load.
    pub fn statements(self, statements: Statements) -> Self {
        Self { statements, ..self }
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
    /// - [`OpenError::Url`]: not `postgres://…` or `postgresql://…`, or not one that sqlx understands;
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
    pub async fn open(self) -> Result<PostgresStore, OpenError> {
        let db = Db::new(self.pool()?, Owner::Store, self.statements, self.clock);
        schema::check(db.connections.pool()).await?;
        Ok(PostgresStore::new(db))
    }

    /// Makes the tables, or brings older ones up to date. Does nothing where nothing is to be done, and two processes
    /// may do it at once. They are made in the first schema of the role's or database's `search_path`.
    ///
    /// # Errors
    /// As [`open`](Self::open), without [`OpenError::Schema`]. Where tables are to be made, and this process or another one is at it, it ends
    /// with [`Timeout`](idempotency::StoreErrorKind::Timeout) after ten minutes. Where a table is to be changed that somebody has for more than three seconds,
    /// a dump or a long transaction, it ends with [`Busy`](idempotency::StoreErrorKind::Busy): try again.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Cancel safe: the tables are changed in one transaction, or not at all.
    pub async fn migrate(self) -> Result<(), OpenError> {
        let pool = self.connections(1).pool()?;
        let migrated = schema::migrate(&pool).await;
        pool.close().await;
        migrated
    }

    fn pool(&self) -> Result<PgPool, OpenError> {
        if !["postgres://", "postgresql://"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(OpenError::Url("a PostgreSQL store's URL is `postgres://USER@HOST/DATABASE`".into()));
        }
        // What sqlx says of it names no password: it tells what is wrong, not what it was given.
        let options = PgConnectOptions::from_str(&self.url).map_err(|error| OpenError::Url(error.to_string()))?;
        let options = match self.statements {
            Statements::InTransactions => options.statement_cache_capacity(0),
            // A statement that stands alone has no transaction whose settings are its own.
            Statements::PreparedOnce => {
                // And a plan is made once: while the tables are empty, it would be to read them whole. What that makes a table cost which has no
                // index is no reason to compile the plan.
                options.options([("lock_timeout", group::WAIT), ("enable_seqscan", "off"), ("jit", "off")])
            }
        };
        Ok(PgPoolOptions::new()
            .max_connections(self.connections)
            .acquire_timeout(self.wait)
            // A ping before every use costs as much as a claim. One that nobody used for a while may be dead.
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

impl std::fmt::Debug for PostgresOptions {
    // Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("wait", &self.wait)
            .field("connections", &self.connections)
            .field("statements", &self.statements)
            .finish_non_exhaustive()
    }
}

/// How statements are sent, which depends on who is between the store and the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statements {
    /// Nothing is kept in a session, and each statement is parsed anew in a transaction. Right through a proxy that pools
    /// transactions, such as PgBouncer, where the next transaction may be another session's. Costs four trips (begin,
    /// parse, execute, commit) where [`PreparedOnce`](Self::PreparedOnce) needs one.
    #[default]
    InTransactions,
    /// Prepared once a session, and a statement that stands alone is one trip, so a claim of a fresh key is. For a direct
    /// connection: it begins with settings of its own (`lock_timeout`, `enable_seqscan`, `jit`) among its startup `options`, which
    /// PgBouncer refuses.
    PreparedOnce,
}
