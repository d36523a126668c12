//! The embedded store: one SQLite file.

mod connections;
mod db;
pub(crate) mod error;
mod group;
mod leases;
mod listing;
mod many;
mod operations;
mod options;
mod row;
mod schema;
mod short;
mod sql;
mod steps;
mod sweep;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use db::Db;
use idempotency::protocol;
use idempotency::{
    Claim, Claimed, Entry, Holder, Lease, List, Nonce, OpenError, Outcome, Page, Record, RecordId, Resolve, Resolved,
    Settled, Store, StoreError, Swept, Timestamp,
};
pub use leases::SqliteLeases;
pub use options::{SqliteOptions, Synchronous};
pub use transaction::SqliteTransaction;

use crate::task;

/// A durable store in one SQLite file, for the processes of one machine. Clones share it.
///
/// ```
/// use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
/// use idempotency_sqlx::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let url = format!("sqlite:{}", folder.path().join("keys.sqlite").display());
/// // Once, before the program serves: `open` never makes a file or a table.
/// SqliteStore::migrate(&url).await?;
///
/// let operation = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
/// for replayed in [false, true] {
///     // Every time as after a restart: what is on record is in the file.
///     let engine = Engine::new(SqliteStore::open(&url).await?, Settings::default());
///     let charge = run(&engine, &operation, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned()));
///     assert_eq!(charge.await?.replayed, replayed);
/// }
/// # Ok(())
/// # }
/// ```
///
/// The rules:
///
/// 1. **One writer.** A claim that is granted, and every renewal, completion, release, abandon and resolution, is one
///    `BEGIN IMMEDIATE` transaction: read the row, let [`protocol`](idempotency::protocol) decide, write it back. The two most frequent,
///    a claim of a key that nobody has and a completion by its holder, are tried first as a statement each, which does the same or nothing.
/// 2. **An open write transaction blocks every other writer of the file**, of this program or another. Answers that need
///    no write (a replay, executed, a mismatch, in flight, in doubt, too old) come from a plain read of the write-ahead
///    log, which nobody blocks; one that [renews a tombstone's window](idempotency::Windows::renewed_up_to) waits half a second at
///    most for its write, which is carried out later if that can be. Other claims wait up to the [busy timeout](SqliteOptions::busy_timeout), then answer
///    [`StoreErrorKind::Busy`](idempotency::StoreErrorKind::Busy), and nothing was carried out. So a transaction of
///    yours on the same file is for writing, not for waiting; and a process stopped inside one stops all the
///    others, and no timeout cures that.
/// 3. **The clock** is SQLite's, that is the machine's, in steps of a millisecond, read under the write lock. It never
///    reads less than when something was last forgotten: that time is in the table `idempotency_clock`. A sweep
///    while the machine's clock is far ahead therefore keeps it there, until somebody corrects that row.
/// 4. **Durable** by default: a commit is on disk before it is answered ([`SqliteOptions::synchronous`]). Claims and what
///    settles them, on different records, that come while a commit is under way share the next one, at most 64 (`idempotency_group_commit_size` counts). Nobody
///    is delayed for it: who comes alone goes alone, in one trip to the database.
/// 5. **What is forgotten is gone.** `secure_delete` zeroes dropped payloads and purged rows in the database, and a sweep
///    that forgot something then empties the log if nobody else is using it, otherwise the next such sweep does. The
///    file keeps its size, and the room is used again.
/// 6. **A row that this release cannot read** is never taken for a new key and never swept. Claims answer
///    [`Claimed::Unreadable`], other operations
///    [`StoreErrorKind::Unreadable`](idempotency::StoreErrorKind::Unreadable); `inspect` and `list` show it as in doubt,
///    which is what its key is as far as anybody here can tell.
/// 7. **A page of [`list`](Store::list)** may hold fewer records than its limit and still have a next one: after 10000 rows
///    looked at, a call hands out what it has.
///
/// Several processes may share the file, on one machine and a local disk: a write-ahead log needs shared memory, and
/// network file systems have no locks to rely on. The database may also hold other tables; its journal mode is
/// set to WAL. Backups are made with SQLite's own tools, not by copying the file; and restoring one forgets what came
/// after it.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Operations are carried out by tasks, each by its own or by one that serves several, in the runtime of whoever came first. Dropping a
/// future before it was polled does nothing; dropping it later does not stop the operation: it is carried out, whole, with nobody there to hear the answer, but for a claim that had not yet come to its
/// write. A claim given up so is to be abandoned, as with any store. Only the end of the runtime cuts an operation off, and then SQLite rolls
/// it back.
#[derive(Clone)]
pub struct SqliteStore {
    db: Arc<Db>,
}

impl SqliteStore {
    /// The tables as plain SQL, for those who apply schema changes with a tool of their own. The same as what
    /// [`migrate`](Self::migrate) makes of an empty file.
    pub const SCHEMA: &str = schema::SCHEMA;

    /// Opens the store at `sqlite:PATH` with the default settings: [`SqliteOptions::open`].
    ///
    /// # Errors
    /// As [`SqliteOptions::open`].
    ///
    /// # Panics
    /// As [`SqliteOptions::open`].
    ///
    /// # Cancel safety
    /// As [`SqliteOptions::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::options(url).open().await
    }

    /// Settings for the store at `sqlite:PATH`.
    pub fn options(url: &str) -> SqliteOptions {
        SqliteOptions::new(url)
    }

    /// Makes the file and its tables, or brings them up to date: [`SqliteOptions::migrate`].
    ///
    /// # Errors
    /// As [`SqliteOptions::migrate`].
    ///
    /// # Panics
    /// As [`SqliteOptions::migrate`].
    ///
    /// # Cancel safety
    /// As [`SqliteOptions::migrate`].
    pub async fn migrate(url: &str) -> Result<(), OpenError> {
        Self::options(url).migrate().await
    }

    /// Closes the connections that nobody uses, and waits until they are. The last store to close a file leaves it
    /// without a log beside it. Dropping the last clone does the same in the background. An operation that comes
    /// later opens a connection again.
    ///
    /// # Errors
    /// Kind `Unavailable` when a connection had already broken.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, it may have closed some.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.db.readers.close().await?;
        self.db.writer.close().await
    }

    fn new(db: Db) -> Self {
        Self { db: Arc::new(db) }
    }

    async fn run<T, F>(&self, operation: impl FnOnce(Arc<Db>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        task::run(operation(self.db.clone())).await
    }

    async fn settle(
        &self,
        id: RecordId,
        decide: impl Fn(Option<&mut Record>, Timestamp) -> Settled + Send + Sync + 'static,
    ) -> Result<Settled, StoreError> {
        operations::settle(&self.db, id, decide).await
    }
}

impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        operations::claim(&self.db, claim).await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.settle(holder.id, move |record, now| protocol::renew(record, &holder, lease, now)).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        operations::complete(&self.db, holder, outcome).await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.settle(holder.id, move |record, now| protocol::release(record, &holder, dead_for, now)).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        let (holder, response) = (*holder, response.cloned());
        self.settle(holder.id, move |record, now| protocol::mark_in_doubt(record, &holder, response.as_ref(), now))
            .await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let abandon = move |record, now| ((), Some(protocol::abandon(record, nonce, dead_for, now)));
        operations::change(&self.db, *id, abandon).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        let resolve = resolve.clone();
        operations::change(&self.db, resolve.id, move |mut record, now| {
            let resolved = protocol::resolve(record.as_mut(), &resolve, now);
            (resolved, record.filter(|_| resolved == Resolved::Applied))
        })
        .await
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        let id = *id;
        self.run(move |db| async move { listing::inspect(&db, &id).await }).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        let list = list.clone();
        self.run(move |db| async move { crate::listing::list(&*db, &list).await }).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.run(move |db| async move { sweep::sweep(&db, limit).await }).await
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}
