//! Leases in SQLite.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{
    Acquired, Ask, Lease, LeaseEntry, LeaseHolder, LeaseRecord, Leases, Nonce, Resource, Settled, StoreError,
    Timestamp, lease_protocol,
};

use super::SqliteStore;
use super::db::{Db, End, Query, cached};
use super::sql;
use crate::{lease_row, task};

/// Leases beside the records of a [`SqliteStore`], in its file and on its clock: [`SqliteStore::leases`].
///
/// ```
/// use idempotency::{LeaseSettings, Leaser, Resource, Taken};
/// use idempotency_sqlx::SqliteStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let url = format!("sqlite:{}", folder.path().join("leases.sqlite").display());
/// SqliteStore::migrate(&url).await?;
///
/// let leaser = Leaser::new(SqliteStore::open(&url).await?.leases(), LeaseSettings::default());
/// let account = Resource::parse("account/7")?;
/// let Taken::Yours(lease) = leaser.try_acquire(&account).await? else { unreachable!("nobody else is here") };
///
/// // Another process of this machine.
/// let other = Leaser::new(SqliteStore::open(&url).await?.leases(), LeaseSettings::default());
/// assert!(matches!(other.try_acquire(&account).await?, Taken::Held { .. }));
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// Whoever finds a lease held is told so by a plain read, which nobody blocks. Everything else is one `BEGIN IMMEDIATE`
/// transaction: read the row, let [`lease_protocol`] decide, write it back. The store's rules on the one writer, the clock
/// and durability hold here too.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// As with the store, every operation is carried out whole once it was polled.
#[derive(Clone)]
pub struct SqliteLeases {
    db: Arc<Db>,
}

impl SqliteStore {
    /// Leases in the same file.
    #[must_use]
    pub fn leases(&self) -> SqliteLeases {
        SqliteLeases { db: Arc::clone(&self.db) }
    }
}

impl SqliteLeases {
    async fn run<T, F>(&self, operation: impl FnOnce(Arc<Db>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        task::run(operation(Arc::clone(&self.db))).await
    }

    async fn settle(
        &self,
        resource: &Resource,
        decide: impl FnOnce(Option<&mut LeaseRecord>, Timestamp) -> Settled + Send + 'static,
    ) -> Result<Settled, StoreError> {
        let resource = resource.clone();
        self.run(move |db| async move {
            change(&db, &resource, |mut record, now| {
                let settled = decide(record.as_mut(), now);
                Ok((settled, record.filter(|_| settled == Settled::Applied)))
            })
            .await
        })
        .await
    }
}

impl Leases for SqliteLeases {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        let ask = ask.clone();
        self.run(move |db| async move {
            let found = lease_row::found(&db.read(|| read(sql::LEASE_READ, &ask.resource, db.given_now())).await?)?;
            if let (acquired, None) = lease_protocol::acquire(found.record.as_ref(), &ask, found.now)? {
                return Ok(acquired);
            }
            // Everything may have changed in between.
            change(&db, &ask.resource, |record, now| lease_protocol::acquire(record.as_ref(), &ask, now)).await
        })
        .await
    }

    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        let held = holder.clone();
        self.settle(&holder.resource, move |record, now| lease_protocol::renew(record, &held, lease, now)).await
    }

    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        let held = holder.clone();
        self.settle(&holder.resource, move |record, now| lease_protocol::release(record, &held, dead_for, now)).await
    }

    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let resource = resource.clone();
        self.run(move |db| async move {
            let abandon = |record, now| Ok(((), Some(lease_protocol::abandon(record, nonce, dead_for, now))));
            change(&db, &resource, abandon).await
        })
        .await
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        let resource = resource.clone();
        self.run(move |db| async move {
            let found = lease_row::found(&db.read(|| read(sql::LEASE_READ, &resource, db.given_now())).await?)?;
            Ok(found.record.and_then(|record| record.entry(found.now)))
        })
        .await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.run(move |db| async move { sweep(&db, limit).await }).await
    }
}

impl std::fmt::Debug for SqliteLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteLeases").finish_non_exhaustive()
    }
}

/// `decide` is given the record and the clock, both under the write lock, and gives its answer and the record to write, if it is
/// to be written.
async fn change<T>(
    db: &Db,
    resource: &Resource,
    decide: impl FnOnce(Option<LeaseRecord>, Timestamp) -> Result<(T, Option<LeaseRecord>), StoreError>,
) -> Result<T, StoreError> {
    let (writing, rows) = db.begin(|given_now| read(sql::BEGIN_AND_READ_LEASE, resource, given_now)).await?;
    let decided = lease_row::found(&rows).and_then(|found| decide(found.record, found.now));
    let end = decided.map(|(answer, record)| match record {
        Some(record) => End::Commit(lease_row::write(cached(sql::WRITE_LEASE_AND_COMMIT), resource, &record), answer),
        None => End::Rollback(answer),
    });
    writing.finish(end).await
}

fn read(statement: &'static str, resource: &Resource, given_now: Option<i64>) -> Query {
    cached(statement).bind(resource.as_bytes().to_vec()).bind(given_now)
}

/// In transactions short enough for others to get in between.
async fn sweep(db: &Db, limit: usize) -> Result<usize, StoreError> {
    let mut purged = 0;
    while purged < limit {
        let batch = (limit - purged).min(BATCH);
        let bound = i64::try_from(batch).unwrap_or(i64::MAX);
        let delete = |given_now: Option<i64>| cached(sql::BEGIN_AND_DELETE_LEASES).bind(given_now).bind(bound);
        let (writing, deleted) = db.begin(delete).await?;
        purged += writing.finish(Ok(End::Commit(cached(sql::COMMIT), deleted.len()))).await?;
        if deleted.len() < batch {
            break;
        }
    }
    Ok(purged)
}

/// Rows in one transaction.
const BATCH: usize = 500;
