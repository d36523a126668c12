//! The store for many hosts: PostgreSQL.

mod db;
pub(crate) mod error;
mod group;
mod leases;
mod listing;
mod operations;
mod options;
mod schema;
mod sql;
mod steps;
mod sweep;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use idempotency::protocol;
use idempotency::{
    Claim, Claimed, Entry, Holder, Lease, List, Nonce, OpenError, Outcome, Page, Record, RecordId, Resolve, Resolved,
    Settled, Store, StoreError, Swept, Timestamp,
};
use sqlx::PgPool;

use db::Db;
pub use leases::PostgresLeases;
pub use options::{PostgresOptions, Statements};
pub use transaction::PostgresTransaction;

use crate::lending::Owner;
use crate::task;

/// A durable store in a PostgreSQL database, for any number of processes and hosts. Clones share its connections.
///
/// ```no_run
/// use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
/// use idempotency_sqlx::PostgresStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "postgres://app@localhost/app";
/// // Once, before the program serves: `open` never makes a table.
/// PostgresStore::migrate(url).await?;
///
/// let engine = Engine::new(PostgresStore::open(url).await?, Settings::default());
/// let operation = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
/// let charge = run(&engine, &operation, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned())).await?;
/// # let _ = charge;
/// # Ok(())
/// # }
/// ```
///
/// The rules:
///
/// 1. **A claim of a fresh key is one statement**, `INSERT … ON CONFLICT DO NOTHING`, and of several at once the primary key
///    lets one through. A time-ordered key with an age limit needs a transaction, which looks at the floor once more.
///    **Group commit**: claims, and completions, of different records that come while two groups of their kind are under way go in one statement and one
///    commit, 32 at most (`idempotency_group_commit_size` counts); of several claims of one key one asks, and the others read along. Nobody is
///    delayed for others to come, and each is answered as if it were alone: a group that fails, or waits for somebody's row for more than
///    100 ms, is carried out one by one, and what takes longer than that leaves its place to others.
///    Whatever else a claim is answered with comes from a plain read; a duplicate never writes
///    or locks the record's row, and waits only while somebody is about to commit what he wrote of it. Only a grant over a row that is free, over, or left behind locks it, and a duplicate that
///    [renews a tombstone's window](idempotency::Windows::renewed_up_to), which has its answer by then and waits half a second at most.
/// 2. **Every change of a row** is a conditional `UPDATE`, or a short transaction that locks the row, reads it, lets
///    [`protocol`](idempotency::protocol) decide, and writes it back, at READ COMMITTED whatever the database's default is.
///    Each waits 5 s at most for a row ([`Busy`](idempotency::StoreErrorKind::Busy)), and a transaction whose process
///    stands still is ended by the server after 10 s.
/// 3. **Serialisation failures and deadlocks** are tried again, at most 16 times within about half a second, and never
///    become an outcome.
/// 4. **The clock** is the server's, in microseconds, read in the statement that decides. It never reads less than when
///    something was last forgotten: that time is in the table `idempotency_clock`.
/// 5. **No session state**: no advisory locks of a session, no settings beyond a transaction, no temporary tables; and by
///    default no prepared statements, see [`Statements`]. Behind PgBouncer, `extra_float_digits` belongs into its
///    `ignore_startup_parameters`, as for every client that uses sqlx.
/// 6. **Durable** as the server is: with `synchronous_commit` off, or after failover to a standby that lagged behind, the
///    last grants and outcomes are lost, and their keys run a second time.
/// 7. **A row that this release cannot read** is never taken for a new key and never swept. Claims answer
///    [`Claimed::Unreadable`], other operations
///    [`StoreErrorKind::Unreadable`](idempotency::StoreErrorKind::Unreadable); `inspect` and `list` show it as in doubt.
/// 8. **A page of [`list`](Store::list)** may hold fewer records than its limit and still have a next one: after 10000 rows
///    looked at, a call hands out what it has.
/// 9. **Waiting duplicates** ask every so often, on no connection of their own. There is no NOTIFY, which takes a lock of the whole server at each
///    commit, and no LISTEN, which a transaction-pooling proxy breaks.
/// 10. **What is forgotten is gone for every query** once a sweep has been there: no answer has it from the end of its window on, and no
///     table from the next sweep on. Its bytes are on disk until VACUUM, which the server does by itself, gives their place to
///     others, and in the write-ahead log and in backups for as long as those are kept.
///
/// The tables are in the first schema of the `search_path` that the role or the database has. The database's encoding is
/// UTF-8. Restoring a backup forgets what came after it.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Every operation runs in a task of its own. Dropping its future before it was polled does nothing; dropping it
/// later does not stop it: it is carried out, whole, with nobody there to hear the answer. A claim given up so is to be
/// abandoned, as with any store. Only the end of the runtime cuts an operation off, and then PostgreSQL rolls it back or has
/// committed it.
#[derive(Clone)]
pub struct PostgresStore {
    db: Arc<Db>,
}

impl PostgresStore {
    /// The tables as plain SQL, for those who apply schema changes with a tool of their own. The same as what
    /// [`migrate`](Self::migrate) makes of an empty database.
    pub const SCHEMA: &str = schema::SCHEMA;

    /// Opens the store at `postgres://USER@HOST/DATABASE` with the default settings: [`PostgresOptions::open`].
    ///
    /// # Errors
    /// As [`PostgresOptions::open`].
    ///
    /// # Panics
    /// As [`PostgresOptions::open`].
    ///
    /// # Cancel safety
    /// As [`PostgresOptions::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::options(url).open().await
    }

    /// Opens the store on connections that the program has already, sent as with [`Statements::InTransactions`]. How long
    /// an operation waits for one is the pool's `acquire_timeout`, 30 s by default: more than the store timeout of a
    /// layer. The store keeps up to 8 of them for 20 to 40 ms after
    /// their use, unless the pool has no others to give at that moment.
    ///
    /// # Errors
    /// As [`PostgresOptions::open`], without [`OpenError::Url`].
    ///
    /// # Panics
    /// As [`PostgresOptions::open`].
    ///
    /// # Cancel safety
    /// As [`PostgresOptions::open`].
    pub async fn from_pool(pool: PgPool) -> Result<Self, OpenError> {
        let db = Db::new(pool, Owner::Program, Statements::InTransactions, None);
        schema::check(db.connections.pool()).await?;
        Ok(Self::new(db))
    }

    /// Settings for the store at `postgres://USER@HOST/DATABASE`.
    pub fn options(url: &str) -> PostgresOptions {
        PostgresOptions::new(url)
    }

    /// Makes the tables, or brings them up to date: [`PostgresOptions::migrate`].
    ///
    /// # Errors
    /// As [`PostgresOptions::migrate`].
    ///
    /// # Panics
    /// As [`PostgresOptions::migrate`].
    ///
    /// # Cancel safety
    /// As [`PostgresOptions::migrate`].
    pub async fn migrate(url: &str) -> Result<(), OpenError> {
        Self::options(url).migrate().await
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
        self.run(move |db| async move { operations::settle(&db, &id, decide).await }).await
    }
}

impl Store for PostgresStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let claim = claim.clone();
        self.run(move |db| async move { operations::claim(&db, &claim).await }).await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.run(move |db| async move { operations::renew(&db, &holder, lease).await }).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let (holder, outcome) = (*holder, outcome.clone());
        self.run(move |db| async move { operations::complete(&db, holder, outcome).await }).await
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
        let id = *id;
        self.run(move |db| async move {
            let abandon = |record, now| ((), Some(protocol::abandon(record, nonce, dead_for, now)));
            operations::change(&db, &id, abandon).await
        })
        .await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        let resolve = resolve.clone();
        self.run(move |db| async move {
            operations::change(&db, &resolve.id, |mut record, now| {
                let resolved = protocol::resolve(record.as_mut(), &resolve, now);
                (resolved, record.filter(|_| resolved == Resolved::Applied))
            })
            .await
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

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
