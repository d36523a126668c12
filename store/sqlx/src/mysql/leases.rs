//! Leases in MySQL and MariaDB.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{
    Acquired, Ask, Lease, LeaseEntry, LeaseHolder, LeaseRecord, Leases, Nonce, Resource, Settled, StoreError,
    Timestamp, lease_protocol,
};
use sqlx::Row as _;

use super::MySqlStore;
use super::db::{Db, Query, Tries};
use super::error::Failure;
use super::sql;
use crate::{lease_row, row, task};

/// Leases beside the records of a [`MySqlStore`], on its connections and its clock: [`MySqlStore::leases`].
///
/// ```no_run
/// use idempotency::{LeaseSettings, Leaser, Resource, Taken};
/// use idempotency_sqlx::MySqlStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MySqlStore::open("mysql://app@localhost/app").await?;
/// let leaser = Leaser::new(store.leases(), LeaseSettings::default());
/// if let Taken::Yours(lease) = leaser.try_acquire(&Resource::parse("account/7")?).await? {
///     let ticket = lease.ticket()?; // what the fence of the account is opened with
/// #   let _ = ticket;
///     lease.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// Whoever finds a lease held is told so by a plain read, and takes no lock. Everything else is a short transaction that
/// locks the resource's row, reads it and the clock, lets [`lease_protocol`] decide, and writes it back, at READ COMMITTED whatever
/// the server's default is. The store's rules on waiting, retries and durability hold here too: after failover
/// to a replica that lagged behind, a lease that was granted may be granted again, with a smaller token. A fence with its own memory
/// notices.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// As with the store, every operation is carried out whole once it was polled.
#[derive(Clone)]
pub struct MySqlLeases {
    db: Arc<Db>,
}

impl MySqlStore {
    /// Leases in the same database.
    #[must_use]
    pub fn leases(&self) -> MySqlLeases {
        MySqlLeases { db: Arc::clone(&self.db) }
    }
}

impl MySqlLeases {
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
        decide: impl Fn(Option<&mut LeaseRecord>, Timestamp) -> Settled + Send + Sync + 'static,
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

impl Leases for MySqlLeases {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        let ask = ask.clone();
        self.run(move |db| async move { try_acquire(&db, &ask).await }).await
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
            let rows = db.read(read(&db, &resource)).await.map_err(Failure::into_store_error)?;
            let found = lease_row::found(&rows)?;
            Ok(found.record.and_then(|record| record.entry(found.now)))
        })
        .await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.run(move |db| async move { sweep(&db, limit).await }).await
    }
}

impl std::fmt::Debug for MySqlLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlLeases").finish_non_exhaustive()
    }
}

async fn try_acquire(db: &Db, ask: &Ask) -> Result<Acquired, StoreError> {
    let mut tries = Tries::new();
    loop {
        let acquired = acquire_once(db, ask).await;
        if let Some(acquired) = tries.judge(acquired).await? {
            return Ok(acquired);
        }
    }
}

async fn acquire_once(db: &Db, ask: &Ask) -> Result<Acquired, Failure> {
    let decide = |record: Option<LeaseRecord>, now| lease_protocol::acquire(record.as_ref(), ask, now);
    let found = lease_row::found(&db.read(read(db, &ask.resource)).await?)?;
    if let (acquired, None) = decide(found.record, found.now)? {
        return Ok(acquired);
    }
    change_once(db, &ask.resource, &decide).await
}

/// What an operation on a resource decides: its answer, and the record to write, if it is to be written.
type Decided<T> = Result<(T, Option<LeaseRecord>), StoreError>;

/// `decide` is given the record and the clock, both as they are with the row locked.
async fn change<T>(
    db: &Db,
    resource: &Resource,
    decide: impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<T>,
) -> Result<T, StoreError> {
    let mut tries = Tries::new();
    loop {
        let changed = change_once(db, resource, &decide).await;
        if let Some(answer) = tries.judge(changed).await? {
            return Ok(answer);
        }
    }
}

async fn change_once<T>(
    db: &Db,
    resource: &Resource,
    decide: &impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<T>,
) -> Result<T, Failure> {
    let mut writing = db.begin().await?;
    let locked = writing.fetch_all(sqlx::query(sql::LEASE_LOCK).bind(resource.as_bytes().to_vec())).await?;
    let found = lease_row::found(&writing.fetch_all(read(db, resource)).await?)?;
    if found.record.is_some() && locked.is_empty() {
        // It was made between the two statements, so it is not ours: whoever has it would be written over.
        return Err(Failure::changed());
    }
    // Where there was no row to lock, somebody may have been first: an error.
    let statement = if found.record.is_some() { sql::LEASE_UPDATE } else { sql::LEASE_INSERT };
    let (answer, record) = decide(found.record, found.now)?;
    match record {
        Some(record) => {
            writing.execute(lease_row::write(sqlx::query(statement), resource, &record)).await?;
            writing.commit().await?;
        }
        None => writing.rollback().await?,
    }
    Ok(answer)
}

fn read(db: &Db, resource: &Resource) -> Query {
    db.timed(sql::LEASE_READ).bind(resource.as_bytes().to_vec())
}

/// In transactions short enough for nobody to wait for long. Any number of sweepers share the work.
async fn sweep(db: &Db, limit: usize) -> Result<usize, StoreError> {
    let mut purged = 0;
    let mut tries = Tries::new();
    while purged < limit {
        let batch = (limit - purged).min(BATCH);
        let deleted = sweep_batch(db, batch).await;
        let Some(deleted) = tries.judge(deleted).await? else { continue };
        purged += deleted;
        if deleted < batch {
            break;
        }
    }
    Ok(purged)
}

async fn sweep_batch(db: &Db, batch: usize) -> Result<usize, Failure> {
    let mut writing = db.begin().await?;
    let clock = writing.fetch_all(db.timed(sql::CLOCK)).await?;
    let now = row::now(clock.first().ok_or_else(Failure::changed)?)?;
    let limit = i64::try_from(batch).unwrap_or(i64::MAX);
    let rows = writing.fetch_all(sqlx::query(sql::LEASE_DUE).bind(now.micros()).bind(limit)).await?;
    let mut deleted = 0;
    for row in &rows {
        let resource = row.try_get::<Vec<u8>, _>("resource")?;
        let delete = sqlx::query(sql::LEASE_DELETE).bind(resource).bind(now.micros());
        deleted += usize::from(writing.execute(delete).await? > 0);
    }
    writing.commit().await?;
    Ok(deleted)
}

/// Rows in one transaction, each of them a statement.
const BATCH: usize = 100;
