//! (d) A lease, and a fence in front of what it guards.

use idempotency::{HeldLease, Lease, LeaseSettings, Leaser, Resource, Taken as Asked};
use idempotency_sqlx::fence::{FenceError, Fences as _, Opened, PostgresFences};
use idempotency_sqlx::{PostgresLeases, PostgresStore};

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};

/// The lease says who should run, and is renewed while they do. The fence is what makes it true: the database admits the newest
/// token and refuses older ones.
///
/// The order is what counts: **open** the fence with the lease's ticket, then **read**, then **write** in a transaction that asks
/// the fence again. Opened only for the write, a late writer could land between the read and the write of the next one.
///
/// **Right for** sections of several transactions with waiting in between (files, other services), for work on rows that are not
/// there yet, and where one lease guards several things. Nothing is locked meanwhile, and a live worker is never overtaken for
/// being slow.
///
/// **Costs** four tables, a renewal every third of the lease, one more statement per transaction, and this much more to understand
/// than an attempt column.
///
/// **Breaks** as a lease without a fence, which is a lock with a time to live; when a write goes past the fence; and, like
/// everything here, for a call to somebody who asks no fence. A fence orders writers and does not make a repeat a no-op: the
/// successor reads what was done before it does it.
pub(crate) struct Fenced {
    work: Work,
    leaser: Leaser<PostgresLeases>,
    fences: PostgresFences,
}

/// A lease, and the fence that it has opened.
pub(crate) struct Section {
    lease: HeldLease<PostgresLeases>,
    opened: Opened,
}

impl Fenced {
    pub(crate) async fn new(work: Work) -> Result<Self, Failure> {
        let store = PostgresStore::from_pool(work.pool.clone()).await?;
        let leaser = Leaser::new(store.leases(), LeaseSettings::default().lease(Lease::new(work.timeout)?));
        // A transaction that stands still is ended, as everywhere here.
        let fences = PostgresFences::new(work.pool.clone()).idle_timeout(work.timeout);
        Ok(Self { work, leaser, fences })
    }
}

impl Approach for Fenced {
    type Held = Section;

    async fn take(&self) -> Result<Taken<Section>, Failure> {
        let resource = Resource::parse(&self.work.job.name())?;
        // An error is not an answer, and a lease that was granted all the same is given up in the background.
        let Ok(Asked::Yours(lease)) = self.leaser.try_acquire(&resource).await else {
            return self.work.not_taken().await;
        };
        // Open, then read.
        let Ok(ticket) = lease.ticket() else { return Ok(Taken::Busy) }; // lost already
        let mut transaction = match self.fences.open_with(&resource, &ticket).await {
            Ok(transaction) => transaction,
            Err(FenceError::Superseded { .. }) => return Ok(Taken::Busy), // overtaken already
            Err(error) => return Err(error.into()),
        };
        let done = self.work.job.is_done(&mut *transaction).await?;
        let opened = transaction.commit().await?;
        if done {
            let _ = lease.release().await;
            return Ok(Taken::AlreadyDone);
        }
        Ok(Taken::Started(Section { lease, opened }))
    }

    async fn finish(&self, Section { lease, opened }: Section) -> Result<Finished, Failure> {
        // Then write. `lease.token()` would say here whether the lease is lost as far as this process knows; the fence
        // knows.
        let mut transaction = match self.fences.reopen(&opened).await {
            Ok(transaction) => transaction,
            Err(FenceError::Superseded { current }) => {
                return Ok(Finished::Refused(format!("superseded by the token {current}")));
            }
            Err(error) => return Err(error.into()),
        };
        self.work.job.happen(&mut transaction, &self.work.worker).await?;
        self.work.job.mark_done(&mut transaction).await?;
        transaction.commit().await?;
        // So that nobody waits for its end. If this fails, it ends by itself.
        let _ = lease.release().await;
        Ok(Finished::Done)
    }
}
