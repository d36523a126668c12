//! A lease in this process's hands: what both kinds of guard are made of.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::asking::Granted;
use super::contract::{Acquired, Ask, LeaseGrant, LeaseHolder, Leases};
use super::held::{LeaseLost, RaiseError, Released};
use super::leaser::{Inner, Leaser};
use crate::belief::Belief;
use crate::patience::Pauses;
use crate::time::BootInstant;
use crate::{FenceTicket, FencingToken, Nonce, Resource, Settled, StoreError, StoreErrorKind, TokenSource, dead_for};

/// Renewed until it is dropped or lost; given back when it is dropped.
pub(super) struct Hold<L: Leases> {
    leaser: Leaser<L>,
    shared: Arc<Shared>,
    renewal: Option<JoinHandle<()>>,
    dead_for: Duration,
    given_back: bool,
}

impl<L: Leases> Hold<L> {
    pub(super) fn new(leaser: &Leaser<L>, granted: Granted, grant: &LeaseGrant, asked: BootInstant) -> Self {
        let settings = &leaser.inner.settings;
        // Every message is answered: nothing can come late, and a resource that is taken often need not remember it.
        let dead_for = if granted.has_copies { dead_for(settings.store_timeout) } else { Duration::ZERO };
        let shared = Arc::new(Shared::new(granted, grant, asked));
        let renewal =
            settings.renew.then(|| tokio::spawn(renew_until_lost(Arc::clone(&leaser.inner), Arc::clone(&shared))));
        Self { leaser: leaser.clone(), shared, renewal, dead_for, given_back: false }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) async fn still_held(&self) -> Result<bool, StoreError> {
        self.shared.renew(&self.leaser.inner).await
    }

    pub(super) async fn raise_above(&self, above: FencingToken) -> Result<FencingToken, RaiseError> {
        let mut unsettled = self.shared.unsettled.lock().await;
        *unsettled = unsettled.max(Some(above));
        self.shared.settle(&self.leaser.inner, &mut unsettled).await
    }

    pub(super) async fn release(mut self) -> Result<Released, StoreError> {
        self.stop_renewing();
        // Before it is sent: from then on somebody else may have it.
        self.shared.belief.lose();
        let released = self.shared.give_back(&self.leaser, self.dead_for).await;
        // Otherwise it goes on when this is dropped.
        self.given_back = released.as_ref().err().is_none_or(StoreError::is_final);
        released
    }

    fn stop_renewing(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }
}

impl<L: Leases> Drop for Hold<L> {
    fn drop(&mut self) {
        self.stop_renewing();
        self.shared.belief.lose();
        if self.given_back {
            return;
        }
        let (leaser, shared, dead_for) = (self.leaser.clone(), Arc::clone(&self.shared), self.dead_for);
        let lease = leaser.inner.settings.lease.length();
        let give_back = async move {
            let mut pauses = Pauses::in_background();
            while let Err(error) = shared.give_back(&leaser, dead_for).await {
                if error.is_final() {
                    return tracing::error!(resource = %shared.resource, %error, "a lease cannot be given back");
                }
                pauses.pause_after(&error).await;
            }
        };
        // A renewal that is under way may begin the last lease when the one before it ends.
        self.leaser.inner.in_background(async move {
            let _ = timeout(lease.saturating_mul(2), give_back).await;
        });
    }
}

/// Renews at every third of the lease.
async fn renew_until_lost<L: Leases>(inner: Arc<Inner<L>>, shared: Arc<Shared>) {
    let lease = inner.settings.lease.length();
    let end = Instant::now() + inner.settings.max_hold;
    let mut due = Instant::now() + inner.settings.renewal_interval();
    loop {
        sleep_until(due).await;
        if Instant::now() >= end {
            tracing::warn!(resource = %shared.resource, "held for longer than max hold; its lease is renewed no more");
            metrics::counter!("idempotency_max_hold_reached_total").increment(1);
            return;
        }
        due = match shared.renew(&inner).await {
            Ok(true) => Instant::now() + inner.settings.renewal_interval(),
            Ok(false) => return,
            // A renewal that fails or times out is not a loss; a loss is an answer.
            Err(_) => {
                metrics::counter!("idempotency_lease_renewals_failed_total").increment(1);
                Instant::now() + lease / 10
            }
        };
    }
}

/// What a guard, its renewal and its views share.
pub(super) struct Shared {
    resource: Resource,
    nonce: Nonce,
    token: AtomicU64,
    belief: Belief,
    counted_as_lost: AtomicBool,
    /// A token that ours was to be raised above, by an asking whose answer never came: the store may have raised it.
    /// Whoever names the token to the store has this lock.
    unsettled: Mutex<Option<FencingToken>>,
    /// A copy of such an asking may still be under way.
    has_copies: AtomicBool,
}

impl Shared {
    fn new(granted: Granted, grant: &LeaseGrant, asked: BootInstant) -> Self {
        Self {
            resource: granted.resource,
            nonce: granted.nonce,
            token: AtomicU64::new(grant.token.get()),
            belief: Belief::new(asked, grant.lease_left),
            counted_as_lost: AtomicBool::new(false),
            unsettled: Mutex::new(None),
            has_copies: AtomicBool::new(false),
        }
    }

    pub(super) fn resource(&self) -> &Resource {
        &self.resource
    }

    pub(super) fn token(&self) -> Result<FencingToken, LeaseLost> {
        if self.is_lost() { Err(LeaseLost) } else { self.last_token() }
    }

    pub(super) fn ticket(&self) -> Result<FenceTicket, LeaseLost> {
        Ok(FenceTicket { token: self.token()?, holder: Some(self.nonce), source: TokenSource::LEASES })
    }

    /// Once it was seen to be over it stays over, whatever a late answer says.
    pub(super) fn time_left(&self) -> Duration {
        let left = self.belief.time_left();
        if left.is_zero() {
            self.belief.lose();
        }
        left
    }

    pub(super) fn is_lost(&self) -> bool {
        self.time_left().is_zero()
    }

    pub(super) async fn lost(&self) {
        self.belief.lost().await;
        self.belief.lose();
    }

    fn last_token(&self) -> Result<FencingToken, LeaseLost> {
        FencingToken::new(self.token.load(Ordering::Acquire)).map_err(|_| LeaseLost)
    }

    fn lose(&self) {
        self.belief.lose();
        if !self.counted_as_lost.swap(true, Ordering::AcqRel) {
            tracing::warn!(resource = %self.resource, "the lease was lost");
            metrics::counter!("idempotency_held_leases_lost_total").increment(1);
        }
    }

    fn holder(&self) -> Result<LeaseHolder, LeaseLost> {
        Ok(LeaseHolder { resource: self.resource.clone(), token: self.last_token()?, nonce: self.nonce })
    }

    /// Whether it is still ours. A lease that is over for us is not lengthened for nobody.
    async fn renew<L: Leases>(&self, inner: &Inner<L>) -> Result<bool, StoreError> {
        let mut unsettled = self.unsettled.lock().await;
        if unsettled.is_some() {
            match self.settle(inner, &mut unsettled).await {
                Ok(_) => {}
                Err(RaiseError::Lost(_)) => return Ok(false),
                Err(RaiseError::Store(error)) => return Err(error),
            }
        }
        let Some(holder) = self.holder().ok().filter(|_| !self.is_lost()) else {
            self.lose();
            return Ok(false);
        };
        let lease = inner.settings.lease;
        let asked = BootInstant::now();
        match inner.within_timeout(inner.leases.renew(&holder, lease)).await? {
            Settled::Applied | Settled::AlreadyApplied => {
                self.belief.extend(asked, lease.length());
                Ok(!self.is_lost())
            }
            Settled::Superseded => {
                self.lose();
                Ok(false)
            }
        }
    }

    /// Asks for a token above the one in `unsettled`, which is empty when the answer is known.
    async fn settle<L: Leases>(
        &self,
        inner: &Inner<L>,
        unsettled: &mut Option<FencingToken>,
    ) -> Result<FencingToken, RaiseError> {
        if self.is_lost() {
            self.lose();
            return Err(RaiseError::Lost(LeaseLost));
        }
        let ask =
            Ask { resource: self.resource.clone(), nonce: self.nonce, lease: inner.settings.lease, above: *unsettled };
        // Also when this is dropped before the answer comes.
        let had_copies = self.has_copies.swap(true, Ordering::AcqRel);
        let answer = inner.within_timeout(inner.leases.try_acquire(&ask)).await;
        if answer
            .as_ref()
            .err()
            .is_none_or(|error| matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Refused))
        {
            *unsettled = None;
            self.has_copies.store(had_copies, Ordering::Release);
        }
        match answer? {
            // While our lease runs nobody else can have had it in between, so this is the same lease with another token. After its
            // end it might be a new one, and nobody may come by a lease that way.
            Acquired::Granted(grant) if !self.is_lost() => {
                self.token.store(grant.token.get(), Ordering::Release);
                Ok(grant.token)
            }
            Acquired::Granted(grant) => {
                self.token.store(grant.token.get(), Ordering::Release);
                self.lose();
                Err(RaiseError::Lost(LeaseLost))
            }
            Acquired::Held { .. } | Acquired::Refused => {
                self.lose();
                Err(RaiseError::Lost(LeaseLost))
            }
        }
    }

    async fn give_back<L: Leases>(&self, leaser: &Leaser<L>, dead: Duration) -> Result<Released, StoreError> {
        let inner = &leaser.inner;
        let unsettled = self.unsettled.lock().await;
        let holder = self.holder().ok().filter(|_| unsettled.is_none());
        let Some(holder) = holder else {
            // Under which token it is held is not known; under which nonce is.
            let dead = dead_for(inner.settings.store_timeout);
            inner.within_timeout(inner.leases.abandon(&self.resource, self.nonce, dead)).await?;
            return Ok(Released::Released);
        };
        let has_copies = self.has_copies.load(Ordering::Acquire);
        let dead = if has_copies { dead_for(inner.settings.store_timeout) } else { dead };
        match inner.within_timeout(inner.leases.release(&holder, dead)).await? {
            Settled::Applied | Settled::AlreadyApplied => Ok(Released::Released),
            Settled::Superseded => {
                // That killed no nonce, and when whoever came after us has gone, a late copy would be granted to nobody.
                if !dead.is_zero() {
                    leaser.abandon_until_answered(self.resource.clone(), self.nonce);
                }
                Ok(Released::NotHeld)
            }
        }
    }
}

/// Without the token: a loose lease is made of this as well.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", &self.resource)
            .field("time_left", &self.belief.time_left())
            .finish_non_exhaustive()
    }
}
