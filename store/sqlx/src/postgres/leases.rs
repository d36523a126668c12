//! Leases in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use idempotency::{
    Acquired, Ask, Lease, LeaseEntry, LeaseHolder, LeaseRecord, Leases, Nonce, Resource, Settled, StoreError,
    Timestamp, lease_protocol,
};

use super::PostgresStore;
use super::db::{Db, Query, Tries, Writing};
use super::error::Failure;
use super::sql;
use crate::{lease_row, task};

/// Leases beside the records of a [`PostgresStore`], on its connections and its clock: [`PostgresStore::leases`].
///
/// ```no_run
/// use idempotency::{LeaseSettings, Leaser, Resource, Taken};
/// use idempotency_sqlx::PostgresStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::open("postgres://app@localhost/app").await?;
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
/// the database's default is. With [`Statements::PreparedOnce`](crate::Statements::PreparedOnce) it is two statements that stand
/// alone, a read and a write of what is still as it was read; only when that was changed in between it is such a transaction. The store's rules on waiting, retries, proxies and durability hold here too: after failover
/// to a standby that lagged behind, a lease that was granted may be granted again, with a smaller token. A fence with its own memory
/// notices.
///
/// # Panics
/// Every operation panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// As with the store, every operation is carried out whole once it was polled.
#[derive(Clone)]
pub struct PostgresLeases {
    db: Arc<Db>,
}

impl PostgresStore {
    /// Leases in the same database.
    #[must_use]
    pub fn leases(&self) -> PostgresLeases {
        PostgresLeases { db: Arc::clone(&self.db) }
    }
}

impl PostgresLeases {
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

impl Leases for PostgresLeases {
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
            let mut tries = Tries::default();
            loop {
                let rows = db.alone(tries.number(), read(&db, &resource)).await;
                if let Some(rows) = tries.judge(rows).await? {
                    let found = lease_row::found(&rows)?;
                    return Ok(found.record.and_then(|record| record.entry(found.now)));
                }
            }
        })
        .await
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.run(move |db| async move { sweep(&db, limit).await }).await
    }
}

impl std::fmt::Debug for PostgresLeases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLeases").finish_non_exhaustive()
    }
}

async fn try_acquire(db: &Db, ask: &Ask) -> Result<Acquired, StoreError> {
    let decide = |record: Option<LeaseRecord>, now| lease_protocol::acquire(record.as_ref(), ask, now);
    let mut tries = Tries::default();
    loop {
        let acquired = if db.may_stand_alone(tries.number()) {
            change_alone(db, &ask.resource, &decide).await
        } else {
            acquire_in_transaction(db, &ask.resource, &decide).await
        };
        if let Some(acquired) = tries.judge(acquired).await? {
            return Ok(acquired);
        }
    }
}

/// Whoever is not granted it has locked nothing.
async fn acquire_in_transaction(
    db: &Db,
    resource: &Resource,
    decide: &impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<Acquired>,
) -> Result<Acquired, Failure> {
    let mut writing = db.begin().await?;
    let found = lease_row::found(&writing.fetch_all(read(db, resource)).await?)?;
    if let (acquired, None) = decide(found.record, found.now)? {
        writing.rollback().await?;
        return Ok(acquired);
    }
    change_in(writing, resource, decide).await
}

/// What an operation on a resource decides: its answer, and the record to write, if it is to be written.
type Decided<T> = Result<(T, Option<LeaseRecord>), StoreError>;

async fn change<T>(
    db: &Db,
    resource: &Resource,
    decide: impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<T>,
) -> Result<T, StoreError> {
    let mut tries = Tries::default();
    loop {
        let changed = if db.may_stand_alone(tries.number()) {
            change_alone(db, resource, &decide).await
        } else {
            match db.begin().await {
                Ok(writing) => change_in(writing, resource, &decide).await,
                Err(failure) => Err(failure),
            }
        };
        if let Some(answer) = tries.judge(changed).await? {
            return Ok(answer);
        }
    }
}

/// In two trips: a plain read, and a write that changes nothing unless the row still is as it was read. When this process stands
/// still in between, what is written is of the time of the read: a lease that is over already, of a holder who knows.
async fn change_alone<T>(
    db: &Db,
    resource: &Resource,
    decide: &impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<T>,
) -> Result<T, Failure> {
    let found = lease_row::found(&db.alone(0, read(db, resource)).await?)?;
    let before = found.record.clone();
    let (answer, record) = decide(found.record, found.now)?;
    let Some(record) = record else { return Ok(answer) };
    let statement = if before.is_some() { sql::LEASE_REPLACE } else { sql::LEASE_INSERT };
    let mut write = lease_row::write(db.query(statement), resource, &record);
    if let Some(before) = &before {
        write = lease_row::compare(write, before);
    }
    if db.change(0, write).await? == 0 {
        return Err(Failure::changed());
    }
    Ok(answer)
}

/// `decide` is given the record and the clock, both as they are with the row locked.
async fn change_in<T>(
    mut writing: Writing<'_>,
    resource: &Resource,
    decide: &impl Fn(Option<LeaseRecord>, Timestamp) -> Decided<T>,
) -> Result<T, Failure> {
    let db = writing.db;
    let locked = writing.fetch_all(db.query(sql::LEASE_LOCK).bind(resource.as_bytes().to_vec())).await?;
    let found = lease_row::found(&writing.fetch_all(read(db, resource)).await?)?;
    if found.record.is_some() && locked.is_empty() {
        // It was made between the two statements, so it is not ours: whoever has it would be written over.
        return Err(Failure::changed());
    }
    let statement = if found.record.is_some() { sql::LEASE_UPDATE } else { sql::LEASE_INSERT };
    let (answer, record) = decide(found.record, found.now)?;
    let Some(record) = record else {
        writing.rollback().await?;
        return Ok(answer);
    };
    // Where there was no row to lock, somebody may have been first.
    if writing.execute(lease_row::write(db.query(statement), resource, &record)).await? == 0 {
        return Err(Failure::changed());
    }
    writing.commit().await?;
    Ok(answer)
}

fn read(db: &Db, resource: &Resource) -> Query {
    db.timed(sql::LEASE_READ).bind(resource.as_bytes().to_vec())
}

/// In transactions short enough for nobody to wait for long. Any number of sweepers share the work.
async fn sweep(db: &Db, limit: usize) -> Result<usize, StoreError> {
    let mut purged = 0;
    let mut tries = Tries::default();
    while purged < limit {
        let batch = (limit - purged).min(BATCH);
        let bound = i64::try_from(batch).unwrap_or(i64::MAX);
        let deleted = db.change(tries.number(), db.timed(sql::LEASE_DELETE).bind(bound)).await;
        let Some(deleted) = tries.judge(deleted).await? else { continue };
        let deleted = usize::try_from(deleted).unwrap_or(usize::MAX);
        purged += deleted;
        if deleted < batch {
            break;
        }
    }
    Ok(purged)
}

/// Rows in one statement.
const BATCH: usize = 500;
