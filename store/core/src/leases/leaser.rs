//! Asking for leases.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::asking::Asking;
use super::contract::{Acquired, Ask, LeaseEntry, Leases};
use super::held::HeldLease;
use super::hold::Hold;
use super::settings::LeaseSettings;
use crate::patience::{Pauses, Waiting, Within, within};
use crate::time::{BootInstant, LONGEST};
use crate::{Nonce, Resource, StoreError, dead_for};

/// Takes leases **for correctness**: each comes with a [`FencingToken`](crate::FencingToken), and whoever receives the
/// holder's writes refuses older ones. Clones share everything.
///
/// A lease alone keeps nobody from running: a holder that stood still (garbage collection, swap, a VM that moved) wakes
/// after its lease ended and does not know it. So a lease here is three things together: a guard that knows its own
/// deadline, a token that cannot be had once the lease is lost, and a receiver that refuses older tokens. Where nobody checks
/// the token, and a second run costs work and nothing else, [`LooseLeases`](crate::LooseLeases) say so. And where the effect is a row in
/// one database, a conditional `UPDATE`, `SELECT … FOR UPDATE` or a UNIQUE row is simpler and stronger than any lease.
///
/// ```
/// use std::time::Duration;
///
/// use idempotency::{LeaseSettings, Leaser, Released, Resource, Taken};
/// use idempotency_memory::MemoryLeases;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leaser = Leaser::new(MemoryLeases::new(), LeaseSettings::default());
/// let account = Resource::parse("account/7")?;
///
/// let Taken::Yours(lease) = leaser.try_acquire(&account).await? else { unreachable!("nobody else is here") };
/// let first = lease.token()?;
/// assert!(matches!(leaser.acquire(&account, Duration::from_millis(20)).await?, Taken::Held { .. }));
/// assert_eq!(lease.release().await?, Released::Released);
///
/// let Taken::Yours(lease) = leaser.try_acquire(&account).await? else { unreachable!("it was given back") };
/// assert!(lease.token()? > first);
/// # Ok(())
/// # }
/// ```
///
/// Must be used inside a tokio runtime with its time driver on. Not promised: mutual exclusion of running code, real-time
/// bounds, fairness among those who wait.
pub struct Leaser<L> {
    pub(super) inner: Arc<Inner<L>>,
}

pub(super) struct Inner<L> {
    pub(super) leases: Arc<L>,
    pub(super) settings: LeaseSettings,
    tracker: TaskTracker,
}

/// What came of asking for a lease.
#[derive(Debug)]
#[must_use = "a lease that is dropped is given back"]
pub enum Taken<G> {
    /// It is yours, until it is given back or lost.
    Yours(G),
    /// Somebody else has it.
    Held {
        /// Until their lease ends, if they do not renew it.
        lease_left: Duration,
    },
}

impl<G> Taken<G> {
    /// The lease, if it is yours.
    pub fn yours(self) -> Option<G> {
        match self {
            Self::Yours(guard) => Some(guard),
            Self::Held { .. } => None,
        }
    }

    pub(super) fn map<H>(self, wrap: impl FnOnce(G) -> H) -> Taken<H> {
        match self {
            Self::Yours(guard) => Taken::Yours(wrap(guard)),
            Self::Held { lease_left } => Taken::Held { lease_left },
        }
    }
}

impl<L: Leases> Leaser<L> {
    /// Takes leases that are kept by `leases`.
    #[must_use]
    pub fn new(leases: L, settings: LeaseSettings) -> Self {
        Self::of(Arc::new(leases), settings, TaskTracker::new())
    }

    /// The same with other settings, for another kind of work. [`Leaser::drain`] of either waits for both.
    #[must_use]
    pub fn with_settings(&self, settings: LeaseSettings) -> Self {
        Self::of(Arc::clone(&self.inner.leases), settings, self.inner.tracker.clone())
    }

    fn of(leases: Arc<L>, settings: LeaseSettings, tracker: TaskTracker) -> Self {
        Self { inner: Arc::new(Inner { leases, settings, tracker }) }
    }

    /// What keeps the leases.
    #[must_use]
    pub fn leases(&self) -> &L {
        &self.inner.leases
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &LeaseSettings {
        &self.inner.settings
    }

    /// Takes the lease if it is free.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say. The asking is then abandoned in the background until the store answers, so
    /// that a grant whose reply was lost does not keep everybody out.
    ///
    /// # Cancel safety
    /// Dropped while the store is asked: abandoned in the background. Dropped afterwards: the lease is given back.
    pub async fn try_acquire(&self, resource: &Resource) -> Result<Taken<HeldLease<L>>, StoreError> {
        self.acquire(resource, Duration::ZERO).await
    }

    /// Takes the lease, waiting for it at most so long. Asks again when it may have been given back, if the store [tells](Leases::watch), and
    /// every so often, under the same nonce, and holds nothing of the store meanwhile. The lease counts from the asking that was granted, so that next to all of it is left after a long wait.
    /// Nobody queues: of several that wait, any may be next.
    ///
    /// # Errors
    /// As [`Leaser::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Leaser::try_acquire`]. Dropped while waiting: nothing is left.
    pub async fn acquire(&self, resource: &Resource, wait: Duration) -> Result<Taken<HeldLease<L>>, StoreError> {
        Ok(self.take(resource, wait).await?.map(HeldLease::new))
    }

    pub(super) async fn take(&self, resource: &Resource, wait: Duration) -> Result<Taken<Hold<L>>, StoreError> {
        let give_up = Instant::now() + wait.min(LONGEST);
        let mut asking = Asking::new(self, resource);
        let mut waiting = None;
        loop {
            let asked = BootInstant::now();
            match asking.ask().await? {
                Acquired::Granted(grant) if BootInstant::now() < asked.after(grant.lease_left) => {
                    metrics::counter!("idempotency_leases_granted_total").increment(1);
                    let hold = Hold::new(self, asking.granted(), &grant, asked);
                    // The renewal that was just spawned waits for this worker alone, and work that blocks it would block its
                    // own renewal.
                    tokio::task::yield_now().await;
                    return Ok(Taken::Yours(hold));
                }
                // Over before we learned of it: this process stood still.
                Acquired::Granted(_) => {
                    self.abandon_until_answered(resource.clone(), asking.granted().nonce);
                    return Err(StoreError::timeout());
                }
                Acquired::Refused => asking.rename(),
                Acquired::Held { lease_left } => {
                    let now = Instant::now();
                    if now >= give_up {
                        return Ok(Taken::Held { lease_left });
                    }
                    let waiting = waiting.get_or_insert_with(|| {
                        metrics::counter!("idempotency_leases_waited_total").increment(1);
                        Waiting::new()
                    });
                    // No hint comes when a lease ends.
                    let watch = || self.inner.leases.watch(resource);
                    waiting.until_next(watch, lease_left.min(give_up - now)).await;
                }
            }
        }
    }

    /// What is known of a resource; none when it was never held or has been forgotten. What it says may be over when it
    /// is read: only for people to look at.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        self.inner.within_timeout(self.inner.leases.inspect(resource)).await
    }

    /// Waits until all that goes on in the background has ended (leases given back, askings abandoned), for at most
    /// `limit`. True when nothing is left.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    #[must_use = "something may be left"]
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.tracker.close();
        timeout(limit, self.inner.tracker.wait()).await.is_ok()
    }

    /// Abandons in the background until the store answers, or nothing of it can be held any more; a drain waits for it.
    pub(super) fn abandon_until_answered(&self, resource: Resource, nonce: Nonce) {
        metrics::counter!("idempotency_leases_abandoned_total").increment(1);
        let inner = Arc::clone(&self.inner);
        let dead = dead_for(inner.settings.store_timeout);
        // Nobody renews what was granted, and nothing that was sent comes later.
        let limit = inner.settings.lease.length().saturating_add(dead);
        self.inner.in_background(async move {
            let _ = timeout(limit, abandon(&inner, &resource, nonce, dead)).await;
        });
    }
}

/// Tries until the store answers.
async fn abandon<L: Leases>(inner: &Inner<L>, resource: &Resource, nonce: Nonce, dead: Duration) {
    let mut pauses = Pauses::in_background();
    loop {
        match inner.within_timeout(inner.leases.abandon(resource, nonce, dead)).await {
            Ok(()) => return,
            Err(error) if error.is_final() => {
                return tracing::error!(%resource, %error, "an asking for a lease cannot be abandoned");
            }
            Err(error) => pauses.pause_after(&error).await,
        }
    }
}

impl<L> Inner<L> {
    /// What an operation of the store answers, if it does within the store timeout.
    pub(super) fn within_timeout<T, F>(&self, operation: F) -> Within<F>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        within(self.settings.store_timeout, operation)
    }

    /// Outside a runtime (a guard dropped after its runtime is gone) there is nobody to do it.
    pub(super) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tracker.spawn_on(work, &runtime);
        }
    }

    /// A new asking.
    pub(super) fn ask(&self, resource: &Resource) -> Ask {
        Ask { resource: resource.clone(), nonce: Nonce::random(), lease: self.settings.lease, above: None }
    }
}

impl<L> Clone for Leaser<L> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<L> fmt::Debug for Leaser<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaser").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}
