//! The store for many hosts: MySQL and MariaDB.

mod db;
pub(crate) mod error;
mod leases;
mod listing;
mod operations;
mod options;
mod row;
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
use sqlx::MySqlPool;

use db::Db;
pub use leases::MySqlLeases;
pub use options::MySqlOptions;
pub use transaction::MySqlTransaction;

use crate::lending::{Lending, Owner};
use crate::task;

/// A durable store in a database of MariaDB 10.6 or later, or MySQL 8, for any number of processes and hosts. Clones share its
/// connections. (It is tested with MariaDB 10.11. Its statements are written for MySQL 8 too, and have not been run there.)
///
/// ```no_run
/// use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
/// use idempotency_sqlx::MySqlStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let url = "mysql://app@localhost/app";
/// // Once, before the program serves: `open` never makes a table.
/// MySqlStore::migrate(url).await?;
///
/// let engine = Engine::new(MySqlStore::open(url).await?, Settings::default());
/// let operation = Operation::new(ScopeId::new(["tenant-a"]), Key::parse("order-42")?, Fingerprint::of(["10 EUR"]));
/// let charge = run(&engine, &operation, async |_| Ok::<_, WorkError<std::io::Error>>("charged".to_owned())).await?;
/// # let _ = charge;
/// # Ok(())
/// # }
/// ```
///
/// The rules:
///
/// 1. **A claim begins with a plain read**, which nobody blocks and which answers every duplicate: a duplicate never writes
///    or locks the record's row. Where there is no row, one is inserted, and of several claimers at once the primary key lets
///    one through: the one that reads its own nonce afterwards, whatever the driver counts as changed. Only a grant over a row
///    that is free, over, or left behind locks it, and a duplicate that
///    [renews a tombstone's window](idempotency::Windows::renewed_up_to), which has its answer by then and waits half a second at most.
/// 2. **Every change of a row** is a conditional `UPDATE`, or a short transaction that locks the row, reads it, lets
///    [`protocol`](idempotency::protocol) decide, and writes it back, at READ COMMITTED whatever the server's default is: at
///    REPEATABLE READ, claims of different new keys deadlock on the gap between them.
/// 3. **Waiting.** A statement waits 5 s at most for a row ([`Busy`](idempotency::StoreErrorKind::Busy)), and MariaDB ends a
///    transaction whose process stands still after 10 s. MySQL has no setting for the latter: there the row is free when the
///    connection breaks. On [a pool of the program's own](Self::from_pool) nothing is set: in MariaDB the first holds all the
///    same, in MySQL its sessions' `innodb_lock_wait_timeout` (50 s).
/// 4. **Deadlocks, waits that were too long and serialisation failures** (1213, 1205, 3572, 40001) are tried again, at most 16
///    times and for 5 s, and never become an outcome. After any error the whole transaction is rolled back: 1205 alone undoes
///    only its statement.
/// 5. **The clock** is the server's, in microseconds and UTC whatever the session's time zone. Of a statement it is the time when
///    it began, so it is read in one that begins after the row is locked; only a completion is as old as its wait. It never
///    reads less than when something was last forgotten: that time is in the table `idempotency_clock`.
/// 6. **No session state** beyond what the store's own pool sets in its own sessions: no `GET_LOCK`, no temporary tables. The
///    isolation level is set for one transaction at a time.
/// 7. **Durable** as the server is: with `innodb_flush_log_at_trx_commit` other than 1, or after failover to a replica that
///    lagged behind, the last grants and outcomes are lost, and their keys run a second time. Reads that a proxy sends to a
///    replica are late and decide nothing. With `binlog_format=STATEMENT` the server refuses to write at READ COMMITTED.
/// 8. **A row that this release cannot read** is never taken for a new key and never swept. Claims answer
///    [`Claimed::Unreadable`], other operations
///    [`StoreErrorKind::Unreadable`](idempotency::StoreErrorKind::Unreadable); `inspect` and `list` show it as in doubt.
/// 9. **A page of [`list`](Store::list)** may hold fewer records than its limit and still have a next one: after 10000 rows
///    looked at, a call hands out what it has.
/// 10. **What is forgotten is gone for every query** once a sweep has been there: no answer has it from the end of its window on, and no
///     table from the next sweep on. Its bytes are on disk until the server's purge and whoever uses the page next overwrite them, and in the
///     binary log and in backups for as long as those are kept.
///
/// Keys, classes and nonces are columns of bytes: two that differ in case or in trailing blanks stay two, whatever the
/// database's collation. An outcome must fit into the server's `max_allowed_packet`. Restoring a backup forgets what came after
/// it. Without TLS, MySQL's `caching_sha2_password` needs sqlx's feature `mysql-rsa`.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Every operation runs in a task of its own. Dropping its future before it was polled does nothing; dropping it
/// later does not stop it: it is carried out, whole, with nobody there to hear the answer. A claim given up so is to be
/// abandoned, as with any store. Only the end of the runtime cuts an operation off, and then the server rolls it back or has
/// committed it.
#[derive(Clone)]
pub struct MySqlStore {
    db: Arc<Db>,
}

impl MySqlStore {
    /// The tables as plain SQL, for those who apply schema changes with a tool of their own. The same as what
    /// [`migrate`](Self::migrate) makes of an empty database.
    pub const SCHEMA: &str = schema::SCHEMA;

    /// Opens the store at `mysql://USER@HOST/DATABASE` with the default settings: [`MySqlOptions::open`].
    ///
    /// # Errors
    /// As [`MySqlOptions::open`].
    ///
    /// # Panics
    /// As [`MySqlOptions::open`].
    ///
    /// # Cancel safety
    /// As [`MySqlOptions::open`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::options(url).open().await
    }

    /// Opens the store on connections that the program has already. Their settings are left alone, so every write is a
    /// transaction with a beginning of its own: two trips more. How long an operation waits for a connection is the pool's
    /// `acquire_timeout`, 30 s by default: more than the store timeout of a layer. The store keeps up to 8 of them for 20 to 40 ms
    /// after their use, unless the pool has no others to give at that moment.
    ///
    /// # Errors
    /// As [`MySqlOptions::open`], without [`OpenError::Url`]; and [`OpenError::Store`] when the sessions have `autocommit` off.
    ///
    /// # Panics
    /// As [`MySqlOptions::open`].
    ///
    /// # Cancel safety
    /// As [`MySqlOptions::open`].
    pub async fn from_pool(pool: MySqlPool) -> Result<Self, OpenError> {
        let connections = Lending::new(pool, Owner::Program);
        let db = Db { connections, clock: None };
        schema::check(db.connections.pool()).await?;
        Ok(Self::new(db))
    }

    /// Settings for the store at `mysql://USER@HOST/DATABASE`.
    pub fn options(url: &str) -> MySqlOptions {
        MySqlOptions::new(url)
    }

    /// Makes the tables, or brings them up to date: [`MySqlOptions::migrate`].
    ///
    /// # Errors
    /// As [`MySqlOptions::migrate`].
    ///
    /// # Panics
    /// As [`MySqlOptions::migrate`].
    ///
    /// # Cancel safety
    /// As [`MySqlOptions::migrate`].
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

impl Store for MySqlStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let claim = claim.clone();
        self.run(move |db| async move { operations::claim(&db, &claim).await }).await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.settle(holder.id, move |record, now| protocol::renew(record, &holder, lease, now)).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let (holder, outcome) = (*holder, outcome.clone());
        self.run(move |db| async move { operations::complete(&db, &holder, &outcome).await }).await
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

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").finish_non_exhaustive()
    }
}
