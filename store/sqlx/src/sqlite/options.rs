//! The settings of a [`SqliteStore`].

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idempotency::{Clock, OpenError};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::connections::{Connections, Deadline, connect};
use super::db::{Db, Turn};
use super::error::store_error;
use super::{SqliteStore, many, schema};
use crate::queue::Queue;

/// How a [`SqliteStore`] is opened: [`SqliteStore::options`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct SqliteOptions {
    url: String,
    busy_timeout: Duration,
    readers: usize,
    synchronous: Synchronous,
    clock: Option<Arc<dyn Clock>>,
}

impl SqliteOptions {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            busy_timeout: Duration::from_secs(1),
            readers: 4,
            synchronous: Synchronous::Full,
            clock: None,
        }
    }

    /// How long an operation waits for a connection and for the file's write lock, before it answers
    /// [`Busy`](idempotency::StoreErrorKind::Busy). Zero means one try.
    ///
    /// Default: 1 s, the store timeout of a layer. Longer than that timeout is pointless: the claimer has
    /// given up by then. Much shorter, and a burst of claims fails where it could have queued.
    pub fn busy_timeout(self, busy_timeout: Duration) -> Self {
        Self { busy_timeout, ..self }
    }

    /// How many connections read at once, at least 1. Each is a thread while it is open.
    ///
    /// Default: 4. With fewer, duplicates queue for their answers behind each other; with more than there are
    /// processors, nothing gets faster.
    pub fn readers(self, readers: usize) -> Self {
        Self { readers: readers.max(1), ..self }
    }

    /// When a commit is on disk.
    ///
    /// Default: [`Synchronous::Full`]. [`Synchronous::Normal`] trades the last commits before a power cut for
    /// speed, and what is lost with them are grants and outcomes: their keys run a second time.
    pub fn synchronous(self, synchronous: Synchronous) -> Self {
        Self { synchronous, ..self }
    }

    /// For tests: this clock in place of the database's. A [`ManualClock`](idempotency::time::ManualClock) moves
    /// when it is told to.
    ///
    /// Default: the database's own, read in the statement that decides. All stores on one file must have the same:
    /// two clocks apart by more than a lease let two attempts run at once.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Opens the store. Creates neither file nor tables.
    ///
    /// # Errors
    /// - [`OpenError::Url`]: not `sqlite:PATH`, a parameter that sqlx does not know, or a database in memory;
    /// - [`OpenError::Schema`]: no file, no tables, or those of an older release: [`migrate`](Self::migrate) first;
    /// - [`OpenError::SchemaTooNew`]: the tables of a newer release;
    /// - [`OpenError::Store`]: no folder, no right to write, no database.
    ///
    /// # Panics
    /// Outside a tokio runtime whose time is enabled.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes no record. At most the file's journal mode has been set.
    pub async fn open(self) -> Result<SqliteStore, OpenError> {
        let options = self.connect_options()?;
        let deadline = Deadline::after(self.busy_timeout);
        let writer = schema::open(&options, deadline).await?;
        let reading = options.clone().pragma("query_only", "ON");
        // From the start: the last connection to close locks the file and removes the log, and the writer's is closed when it fails.
        let reader = connect(&reading, deadline).await.map_err(|error| OpenError::Store(store_error(error)))?;
        Ok(SqliteStore::new(Db {
            readers: Connections::new(reading, self.readers).with(reader),
            writer: Connections::new(options, 1).with(writer),
            clock: self.clock,
            busy_timeout: self.busy_timeout,
            turn: Turn::default().into(),
            met: false.into(),
            looks: Queue::new(1, many::MOST),
            changes: Queue::new(1, many::MOST),
        }))
    }

    /// Makes the file and its tables, or brings older tables up to date. Does nothing where nothing is to be done,
    /// and two processes may do it at once.
    ///
    /// # Errors
    /// As [`open`](Self::open), without [`OpenError::Schema`].
    ///
    /// # Panics
    /// As [`open`](Self::open).
    ///
    /// # Cancel safety
    /// Cancel safe: the tables are changed in one transaction, or not at all.
    pub async fn migrate(self) -> Result<(), OpenError> {
        schema::migrate(self.connect_options()?, Deadline::after(self.busy_timeout)).await
    }

    fn connect_options(&self) -> Result<SqliteConnectOptions, OpenError> {
        if !self.url.starts_with("sqlite:") {
            return Err(OpenError::Url("a SQLite store's URL is `sqlite:PATH`".into()));
        }
        let options = SqliteConnectOptions::from_str(&self.url).map_err(|error| OpenError::Url(error.to_string()))?;
        if options.get_filename().as_os_str().is_empty() {
            return Err(OpenError::Url("a SQLite store's URL is `sqlite:PATH`, with a path".into()));
        }
        Ok(options
            .create_if_missing(false)
            // A shared cache has locks of its own, which nothing can wait for.
            .shared_cache(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(match self.synchronous {
                Synchronous::Full => SqliteSynchronous::Full,
                Synchronous::Normal => SqliteSynchronous::Normal,
            })
            // What is deleted is overwritten: responses do not linger in free pages.
            .pragma("secure_delete", "ON")
            // The waiting is ours: SQLite's own cannot be bounded across connections and has no jitter.
            .busy_timeout(Duration::ZERO)
            .disable_statement_logging())
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("url", &self.url)
            .field("busy_timeout", &self.busy_timeout)
            .field("readers", &self.readers)
            .field("synchronous", &self.synchronous)
            .finish_non_exhaustive()
    }
}

/// When a commit is on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// Before it is acknowledged. A grant or an outcome that was answered survives a power cut, as far as the disk
    /// keeps its word.
    #[default]
    Full,
    /// Some time later. The death of the program loses nothing; a power cut or the death of the operating system loses
    /// the last commits, whole ones, and the file stays sound.
    Normal,
}
