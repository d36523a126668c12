//! Claiming, keeping and settling over a store: what the HTTP layer and [`run`](crate::run) share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use crate::held::Held;
use crate::patience::{Pauses, within};
use crate::renewals::Renewals;
use crate::time::{BootInstant, LONGEST};
use crate::{
    Attempt, Claim, Claimed, Fingerprint, Grant, InFlight, Key, Nonce, RecordId, ScopeId, Settings, State, Store,
    StoreError, StoreErrorKind, Timestamp, dead_for,
};

/// A store together with the settings of one kind of work. Clones share everything.
///
/// Must be used inside a tokio runtime with its time driver on.
pub struct Engine<St> {
    pub(crate) inner: Arc<Inner<St>>,
}

pub(crate) struct Inner<St> {
    pub(crate) store: Arc<St>,
    pub(crate) settings: Settings,
    pub(crate) renewals: Renewals,
    pub(crate) tracker: TaskTracker,
    serial: AtomicU64,
}

impl<St> Inner<St> {
    /// What an operation of the store answers, if it does within the store timeout.
    pub(crate) async fn within_timeout<T>(
        &self,
        operation: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        within(self.settings.store_timeout, operation).await
    }
}

impl<St> Clone for Engine<St> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<St> std::fmt::Debug for Engine<St> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// What is to happen once: whose it is, what it is called, and what its retry must repeat.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Whose key it is.
    pub scope: ScopeId,
    /// What the caller calls it.
    pub key: Key,
    /// What a duplicate must repeat.
    pub fingerprint: Fingerprint,
    /// When a time-ordered key says it was made.
    pub key_time: Option<Timestamp>,
    /// The most bytes its outcome may take in the store.
    pub room: u32,
}

impl Operation {
    /// An operation with an opaque key whose outcome takes at most 64 KiB.
    #[must_use]
    pub const fn new(scope: ScopeId, key: Key, fingerprint: Fingerprint) -> Self {
        Self { scope, key, fingerprint, key_time: None, room: 64 * 1024 }
    }

    /// Which record it has.
    #[must_use]
    pub fn record_id(&self) -> RecordId {
        RecordId::new(&self.scope, &self.key)
    }
}

/// Whether to run.
#[derive(Debug)]
pub enum Answer<St: Store> {
    /// Run, and settle what was given.
    Run(Held<St>),
    /// Do not run; this is why. Never [`Claimed::Granted`] nor [`Claimed::Refused`].
    DoNot(Claimed),
}

impl<St: Store> Engine<St> {
    /// An engine over `store`.
    #[must_use]
    pub fn new(store: St, settings: Settings) -> Self {
        Self::of(Arc::new(store), settings, TaskTracker::new())
    }

    /// An engine with other settings over the same store, for another kind of work. [`Engine::drain`] of either waits
    /// for both.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        Self::of(Arc::clone(&self.inner.store), settings, self.inner.tracker.clone())
    }

    fn of(store: Arc<St>, settings: Settings, tracker: TaskTracker) -> Self {
        let renewals = Renewals::new();
        Self { inner: Arc::new(Inner { store, settings, renewals, tracker, serial: AtomicU64::new(0) }) }
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &St {
        &self.inner.store
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// Counts the work that [`Engine::drain`] waits for.
    #[must_use]
    pub fn tracker(&self) -> &TaskTracker {
        &self.inner.tracker
    }

    /// Waits until all tracked work has ended (handlers that a client left behind, recording and abandoning that is
    /// tried again in the background), for at most `limit`. True when nothing is left.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    #[must_use = "work may be left"]
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.tracker.close();
        timeout(limit, self.inner.tracker.wait()).await.is_ok()
    }

    /// Asks to run `operation`, waiting while it is in flight if the settings say so.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say. The claim is then abandoned in the background until the store
    /// answers, so that a grant whose reply was lost does not hold the key.
    ///
    /// # Cancel safety
    /// Dropped while the store is asked: the claim is abandoned in the background. Dropped while waiting for another
    /// attempt to end: nothing is left.
    pub async fn claim(&self, operation: &Operation) -> Result<Answer<St>, StoreError> {
        let settings = &self.inner.settings;
        if settings.renew {
            self.inner.renewals.ensure_running(&self.downgrade(), settings.renewal_interval()).await;
        }
        let mut claim = self.claim_of(operation);
        let give_up = match settings.in_flight {
            InFlight::Reject => None,
            InFlight::Wait(limit) => Some(Instant::now() + limit.min(LONGEST)),
        };
        let mut pauses = Pauses::of_a_waiter();
        loop {
            let asked = BootInstant::now();
            match self.ask(&claim).await? {
                Claimed::Granted(grant) if BootInstant::now() < asked.after(grant.lease_left) => {
                    return Ok(Answer::Run(self.hold(operation, &claim, &grant, asked)));
                }
                Claimed::Refused => claim.nonce = Nonce::random(),
                // The lease was over before we learned of it: the first reply was lost, or this process stood still. Nothing
                // ran under this nonce.
                Claimed::Granted(grant) => {
                    self.abandon_and_rename(&mut claim).await?;
                    if !grant.lease_left.is_zero() {
                        return Err(StoreError::timeout());
                    }
                }
                Claimed::InDoubt(doubt) if doubt.own => self.abandon_and_rename(&mut claim).await?,
                Claimed::InFlight { lease_left } => {
                    let now = Instant::now();
                    let Some(end) = give_up.filter(|end| *end > now) else {
                        return Ok(Answer::DoNot(Claimed::InFlight { lease_left }));
                    };
                    sleep(pauses.next_pause().min(end - now)).await;
                }
                answer => return Ok(Answer::DoNot(answer)),
            }
        }
    }

    /// What is on record for an operation whose own attempt was superseded. Runs nothing and takes nothing over: unless the
    /// record has an answer, this one is [`Claimed::InFlight`] with no time left.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say.
    ///
    /// # Cancel safety
    /// As [`Engine::claim`].
    pub async fn look(&self, operation: &Operation) -> Result<Claimed, StoreError> {
        let claim = self.claim_of(operation);
        let entry = self.inner.within_timeout(self.inner.store.inspect(&claim.id)).await?;
        // A claim beside an attempt that runs could take it over.
        let answered = entry.is_some_and(|e| matches!(e.state, State::Completed | State::Tombstone | State::InDoubt));
        let answer = if answered { self.ask(&claim).await? } else { Claimed::InFlight { lease_left: Duration::ZERO } };
        if let Claimed::Granted(_) = answer {
            // Forgotten between the two questions.
            self.abandon_until_answered(claim.id, claim.nonce);
            return Ok(Claimed::InFlight { lease_left: Duration::ZERO });
        }
        Ok(answer)
    }

    fn claim_of(&self, operation: &Operation) -> Claim {
        let settings = &self.inner.settings;
        Claim {
            id: operation.record_id(),
            fingerprint: operation.fingerprint,
            nonce: Nonce::random(),
            lease: settings.lease,
            life: settings.life.clone(),
            key_time: operation.key_time,
            room: operation.room,
        }
    }

    fn hold(&self, operation: &Operation, claim: &Claim, grant: &Grant, asked: BootInstant) -> Held<St> {
        if grant.possible_escape {
            tracing::warn!(record_id = %claim.id, "a record in doubt was forgotten: its effect may happen twice");
            metrics::counter!("idempotency_possible_escapes_total").increment(1);
        }
        let serial = self.inner.serial.fetch_add(1, Ordering::Relaxed);
        let named = (claim.id, claim.nonce);
        let around = (&self.inner.settings, &self.inner.tracker);
        let attempt = Attempt::new(operation.key.clone(), named, grant, asked, serial, around);
        if self.inner.settings.renew {
            self.inner.renewals.start(&attempt, self.inner.settings.renewal_interval());
        }
        Held::new(self.clone(), attempt)
    }

    /// One claim, within the store timeout. A connection that turns out to be broken gets one more try under the
    /// same nonce, which is safe.
    async fn ask(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let guard = AbandonOnDrop { engine: self, claim };
        let store = &self.inner.store;
        let asked = self.inner.within_timeout(async {
            match store.claim(claim).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => match store.claim(claim).await {
                    // The second try was not carried out; the first may have been.
                    Err(again) if again.kind() == StoreErrorKind::Busy => Err(error),
                    answer => answer,
                },
                answer => answer,
            }
        });
        let answer = asked.await;
        // Busy says for certain that nothing was carried out; every other error may hide a grant.
        if !answer.as_ref().is_err_and(|error| error.kind() != StoreErrorKind::Busy) {
            std::mem::forget(guard);
        }
        answer
    }

    /// Gives up a grant of our own that is past its lease, and takes a new name.
    async fn abandon_and_rename(&self, claim: &mut Claim) -> Result<(), StoreError> {
        let dead = dead_for(self.inner.settings.store_timeout);
        self.inner.within_timeout(self.inner.store.abandon(&claim.id, claim.nonce, dead)).await?;
        claim.nonce = Nonce::random();
        Ok(())
    }

    /// Abandons in the background until the store answers; a drain waits for it.
    fn abandon_until_answered(&self, id: RecordId, nonce: Nonce) {
        // Outside a runtime (a future dropped after its runtime is gone) there is nobody to do it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = Arc::clone(&self.inner);
        let abandon = async move {
            let dead = dead_for(inner.settings.store_timeout);
            let mut pauses = Pauses::in_background();
            loop {
                match inner.within_timeout(inner.store.abandon(&id, nonce, dead)).await {
                    Ok(()) => return,
                    Err(error) if error.is_final() => {
                        return tracing::error!(record_id = %id, %error, "a claim cannot be abandoned");
                    }
                    Err(_) => pauses.pause().await,
                }
            }
        };
        metrics::counter!("idempotency_claims_abandoned_total").increment(1);
        self.inner.tracker.spawn_on(abandon, &runtime);
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner<St>> {
        Arc::downgrade(&self.inner)
    }
}

/// Abandons the claim when it is dropped: the answer never came, in time or at all.
struct AbandonOnDrop<'e, St: Store> {
    engine: &'e Engine<St>,
    claim: &'e Claim,
}

impl<St: Store> Drop for AbandonOnDrop<'_, St> {
    fn drop(&mut self) {
        self.engine.abandon_until_answered(self.claim.id, self.claim.nonce);
    }
}
