//! Claiming, keeping and settling over a store: what the HTTP layer and [`run`](crate::run) share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use crate::abandoning::Abandoning;
use crate::held::Held;
use crate::patience::{Waiting, Within, within};
use crate::renewals::Renewals;
use crate::time::{BootInstant, LONGEST};
use crate::waiters::Waiters;
use crate::{
    Attempt, Claim, Claimed, Fingerprint, Grant, InFlight, Key, Nonce, RecordId, ScopeId, Settings, State, Store,
    StoreError, StoreErrorKind, Timestamp, dead_for, observing,
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
    pub(crate) abandoning: Abandoning,
    waiters: Waiters,
    serial: AtomicU64,
}

impl<St> Inner<St> {
    /// What an operation of the store answers, if it does within the store timeout.
    pub(crate) fn within_timeout<T, F>(&self, operation: F) -> Within<F>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        within(self.settings.store_timeout, operation)
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
    /// What kind of work it is, for a [trace](crate::trace): never a key, nor anything of one request alone.
    pub route: Option<Arc<str>>,
}

impl Operation {
    /// An operation with an opaque key whose outcome takes at most 64 KiB.
    #[must_use]
    pub const fn new(scope: ScopeId, key: Key, fingerprint: Fingerprint) -> Self {
        Self { scope, key, fingerprint, key_time: None, room: 64 * 1024, route: None }
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
    /// An engine over `store`. Settings that do not fit together are no error here but in [`Settings::checked`]: end with it where
    /// they are made. Here they are only complained about in the log.
    #[must_use]
    pub fn new(store: St, settings: Settings) -> Self {
        settings.complain();
        let engine = Self::of(Arc::new(store), settings, TaskTracker::new(), Waiters::default());
        // Not the first, which complains.
        engine.inner.serial.store(1, Ordering::Relaxed);
        engine
    }

    /// An engine with other settings over the same store, for another kind of work. [`Engine::drain`] of either waits
    /// for both, and duplicates that wait count for both.
    #[must_use]
    pub fn with_settings(&self, settings: Settings) -> Self {
        let inner = &self.inner;
        Self::of(Arc::clone(&inner.store), settings, inner.tracker.clone(), inner.waiters.clone())
    }

    fn of(store: Arc<St>, settings: Settings, tracker: TaskTracker, waiters: Waiters) -> Self {
        let renewals = Renewals::new();
        let (abandoning, serial) = (Abandoning::default(), AtomicU64::new(0));
        Self { inner: Arc::new(Inner { store, settings, renewals, tracker, abandoning, waiters, serial }) }
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
    /// With a [trace](Settings::trace), the last tenth of the limit, at most a second, is the trace's: everything is written that arrived, what
    /// still runs as if it had not run. A disk that takes longer is not waited for here, but by whoever drops the runtime or the last of the trace.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    #[must_use = "work may be left"]
    pub async fn drain(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit.min(LONGEST);
        self.inner.tracker.close();
        let Some(trace) = self.inner.settings.trace.clone() else {
            return timeout_at(end, self.inner.tracker.wait()).await.is_ok();
        };
        let for_the_disk = (limit / 10).min(Duration::from_secs(1));
        let ended = timeout_at(end - for_the_disk, self.inner.tracker.wait()).await.is_ok();
        let written = timeout_at(end, tokio::task::spawn_blocking(move || trace.flush_all())).await;
        if written.is_err() {
            tracing::warn!("the trace is not all written yet");
        }
        ended
    }

    /// Asks to run `operation`, waiting while it is in flight if the settings say so and not [too many](Settings::max_waiting) wait.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say. The claim is then abandoned in the background until the store
    /// answers, so that a grant whose reply was lost does not hold the key.
    ///
    /// # Cancel safety
    /// Dropped while the store is asked: the claim is abandoned in the background. Dropped while waiting for another
    /// attempt to end: nothing is left.
    pub async fn claim(&self, operation: &Operation) -> Result<Answer<St>, StoreError> {
        let arrival = self.inner.settings.trace.as_ref().and_then(|trace| trace.arrival(operation));
        match self.decide(operation).await? {
            Answer::Run(held) => Ok(Answer::Run(held.traced(arrival))),
            Answer::DoNot(claimed) => {
                observing::duplicate(&claimed, operation);
                if let Some(arrival) = arrival {
                    arrival.answered(claimed.recorded_size());
                }
                Ok(Answer::DoNot(claimed))
            }
        }
    }

    async fn decide(&self, operation: &Operation) -> Result<Answer<St>, StoreError> {
        let settings = &self.inner.settings;
        if settings.renew {
            self.inner.renewals.ensure_running(&self.downgrade(), settings.renewal_interval()).await;
        }
        let mut claim = self.claim_of(operation);
        let give_up = match settings.in_flight {
            InFlight::Reject => None,
            InFlight::Wait(limit) => Some(Instant::now() + limit.min(LONGEST)),
        };
        let mut waiting = None;
        let mut place = None;
        loop {
            let asked = BootInstant::now();
            // What is done before the next asking is rare. The answer is gone by then, so that it has no place of its own in this future.
            let next = match self.ask(&mut claim).await? {
                (Claimed::Granted(grant), has_copy) if BootInstant::now() < asked.after(grant.lease_left) => {
                    return Ok(Answer::Run(self.hold(operation, &claim, &grant, asked).copied(has_copy)));
                }
                (Claimed::Refused, _) => Next::Rename,
                // The lease was over before we learned of it: the first reply was lost, or this process stood still. Nothing
                // ran under this nonce.
                (Claimed::Granted(grant), _) => Next::Abandon { give_up: !grant.lease_left.is_zero() },
                (Claimed::InDoubt(doubt), _) if doubt.own => Next::Abandon { give_up: false },
                (Claimed::InFlight { lease_left }, _) => {
                    let now = Instant::now();
                    let Some(end) = give_up.filter(|end| *end > now) else {
                        return Ok(Answer::DoNot(Claimed::InFlight { lease_left }));
                    };
                    place = place.or_else(|| self.inner.waiters.sit(self.inner.settings.max_waiting));
                    if place.is_none() {
                        metrics::counter!("idempotency_waits_refused_total").increment(1);
                        return Ok(Answer::DoNot(Claimed::InFlight { lease_left }));
                    }
                    // No hint comes when a lease ends.
                    Next::Wait(lease_left.min(end - now))
                }
                (answer, _) => return Ok(Answer::DoNot(answer)),
            };
            match next {
                Next::Rename => claim.nonce = Nonce::random(),
                Next::Abandon { give_up } => {
                    Box::pin(self.abandon_and_rename(&mut claim)).await?;
                    if give_up {
                        return Err(StoreError::timeout());
                    }
                }
                Next::Wait(at_most) => {
                    let watch = || self.inner.store.watch(&claim.id);
                    let waiting = waiting.get_or_insert_with(|| Box::new(Waiting::new()));
                    Box::pin(waiting.until_next(watch, at_most)).await;
                }
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
        let mut claim = self.claim_of(operation);
        let entry = self.inner.within_timeout(self.inner.store.inspect(&claim.id)).await?;
        // A claim beside an attempt that runs could take it over.
        let answered = entry.is_some_and(|e| matches!(e.state, State::Completed | State::Tombstone | State::InDoubt));
        let answer =
            if answered { self.ask(&mut claim).await?.0 } else { Claimed::InFlight { lease_left: Duration::ZERO } };
        if let Claimed::Granted(_) = answer {
            // Forgotten between the two questions.
            self.inner.abandon_until_answered(claim.id, claim.nonce);
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
        observing::granted(claim, grant, operation);
        let serial = self.inner.serial.fetch_add(1, Ordering::Relaxed);
        if serial == 0 {
            // Not earlier: those who set one after the other pass by settings that do not fit yet.
            self.inner.settings.complain();
        }
        let named = (claim.id, claim.nonce);
        let around = (&self.inner.settings, &self.inner.tracker);
        let attempt = Attempt::new(operation.key.clone(), named, grant, asked, serial, around);
        if self.inner.settings.renew {
            self.inner.renewals.start(&attempt, self.inner.settings.renewal_interval());
        }
        Held::new(self.clone(), attempt)
    }

    /// One claim, within the store timeout. A connection that turns out to be broken gets one more try under the
    /// same nonce, which is safe. When that one is answered without a grant, the first may still arrive: its nonce is
    /// abandoned, and the claim has a new one. Also tells whether a copy of this claim may still arrive under its nonce.
    async fn ask(&self, claim: &mut Claim) -> Result<(Claimed, bool), StoreError> {
        let guard = AbandonOnDrop { engine: self, claim };
        let store = &self.inner.store;
        let mut first_is_out = false;
        let asked = self.inner.within_timeout(async {
            let error = match store.claim(claim).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => error,
                answer => return answer,
            };
            first_is_out = true;
            match Box::pin(store.claim(claim)).await {
                // The second try was not carried out; the first may have been.
                Err(again) if again.kind() == StoreErrorKind::Busy => Err(error),
                // Nobody but the store itself can have given up a grant of the first: under another nonce it would do so
                // again, and again.
                Ok(Claimed::Refused) => Err(error),
                answer => answer,
            }
        });
        let answer = asked.await;
        let may_hide_a_grant = match &answer {
            // Busy says for certain that nothing was carried out.
            Err(error) => error.kind() != StoreErrorKind::Busy,
            // A copy of what was granted is granted again while it is held (see `Held::superseded`), and one of a dead nonce or of
            // one in doubt never.
            Ok(Claimed::Granted(_) | Claimed::Refused) => false,
            Ok(Claimed::InDoubt(doubt)) if doubt.own => false,
            Ok(_) => first_is_out,
        };
        if may_hide_a_grant {
            drop(guard);
            claim.nonce = Nonce::random();
        } else {
            std::mem::forget(guard);
        }
        answer.map(|claimed| (claimed, first_is_out))
    }

    /// Gives up a grant of our own that is past its lease, and takes a new name.
    async fn abandon_and_rename(&self, claim: &mut Claim) -> Result<(), StoreError> {
        let guard = AbandonOnDrop { engine: self, claim };
        let dead = dead_for(self.inner.settings.store_timeout);
        self.inner.within_timeout(self.inner.store.abandon(&claim.id, claim.nonce, dead)).await?;
        std::mem::forget(guard);
        claim.nonce = Nonce::random();
        Ok(())
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner<St>> {
        Arc::downgrade(&self.inner)
    }
}

/// What is done before the store is asked again.
enum Next {
    /// Under another nonce.
    Rename,
    /// The grant is given up, and so is the asking if the store may be too slow for any.
    Abandon {
        give_up: bool,
    },
    Wait(Duration),
}

/// Abandons the claim when it is dropped: the answer never came, in time or at all.
struct AbandonOnDrop<'e, St: Store> {
    engine: &'e Engine<St>,
    claim: &'e Claim,
}

impl<St: Store> Drop for AbandonOnDrop<'_, St> {
    fn drop(&mut self) {
        self.engine.inner.abandon_until_answered(self.claim.id, self.claim.nonce);
    }
}
