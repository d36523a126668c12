//! A few connections, lent one at a time, and how long anybody waits for anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotency::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{ConnectOptions, Connection, Executor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::db::Query;
use super::error::{is_busy, store_error, waited};

/// At most so many connections, made when they are needed and lent in the order in which they were asked
/// for. sqlx's own pool pings each connection between two uses, which costs as much as a statement here.
pub(super) struct Connections {
    options: SqliteConnectOptions,
    idle: Arc<Mutex<Vec<SqliteConnection>>>,
    permits: Arc<Semaphore>,
}

impl Connections {
    pub(super) fn new(options: SqliteConnectOptions, most: usize) -> Self {
        Self { options, idle: Arc::default(), permits: Arc::new(Semaphore::new(most)) }
    }

    /// With one that is open already.
    pub(super) fn with(self, connection: SqliteConnection) -> Self {
        give_back(&self.idle, connection);
        self
    }

    pub(super) async fn lend(&self, deadline: Deadline) -> Result<Lent, StoreError> {
        let permit = match timeout_at(deadline.0, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => return Err(waited()),
        };
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect(&self.options, deadline).await.map_err(store_error)?,
        };
        Ok(Lent { connection, home: Arc::clone(&self.idle), _permit: permit })
    }

    /// One that is open and that nobody has or waits for.
    pub(super) fn lend_at_once(&self) -> Option<Lent> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Lent { connection, home: Arc::clone(&self.idle), _permit: permit })
    }

    /// Closes those that are not lent, and waits until they are.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            connection.close().await.map_err(store_error)?;
        }
        Ok(())
    }
}

/// Opens a connection, with patience: the first one recovers the log of a crashed process, and the last one
/// to close removes it, both behind an exclusive lock.
pub(super) async fn connect(
    options: &SqliteConnectOptions,
    deadline: Deadline,
) -> Result<SqliteConnection, sqlx::Error> {
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && deadline.pause().await => {}
            result => return result,
        }
    }
}

/// A connection on loan. Dropped, it is closed, and SQLite rolls back what it had begun: only one that is known
/// to be in order is given back.
pub(super) struct Lent {
    pub(super) connection: SqliteConnection,
    home: Arc<Mutex<Vec<SqliteConnection>>>,
    _permit: OwnedSemaphorePermit,
}

impl Lent {
    pub(super) fn give_back(self) {
        give_back(&self.home, self.connection);
    }

    /// The rows of statements outside a transaction, of which the last alone may write. None: somebody else was in the way of it, and
    /// nothing was written.
    pub(super) async fn fetch_all(mut self, statements: Query) -> Result<Option<Vec<SqliteRow>>, StoreError> {
        let rows = match self.connection.fetch_all(statements).await {
            Ok(rows) => Some(rows),
            Err(error) if is_busy(&error) => None,
            Err(error) => return Err(store_error(error)),
        };
        self.give_back();
        Ok(rows)
    }
}

fn give_back(idle: &Mutex<Vec<SqliteConnection>>, connection: SqliteConnection) {
    idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
}

/// Until when somebody waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// In so long; a year at most.
    pub(super) fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout.min(Duration::from_secs(366 * 86_400)))
    }

    pub(super) fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    /// Waits a moment, so that another try makes sense. False when the time is over.
    ///
    /// SQLite's own busy handler backs off to 100 ms, and whoever waits that long between two tries never finds the
    /// moment between two of another process's transactions. So the waits do not grow.
    pub(super) async fn pause(self) -> bool {
        if self.is_over() {
            return false;
        }
        let now = Instant::now();
        let jitter = Duration::from_micros(rand::random_range(300..1300));
        sleep_until(self.0.min(now + jitter)).await;
        true
    }
}
