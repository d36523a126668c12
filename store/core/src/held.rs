//! A claim that was granted, until it is settled.

use crate::engine::Inner;
use crate::patience::Pauses;
use crate::trace::Arrival;
use crate::{Attempt, Engine, Holder, Outcome, Recovery, Settled, Store, StoreError, dead_for};
use std::sync::Arc;

/// Permission to run, kept by renewing until it is settled by one of its methods.
///
/// Dropped without being settled it stops renewing and leaves the claim to its lease, because nobody knows
/// whether the effect happened: it never releases by itself.
#[derive(Debug)]
pub struct Held<St: Store> {
    engine: Engine<St>,
    attempt: Attempt,
    arrival: Option<Arrival>,
    /// A copy of the claim may still arrive.
    has_copy: bool,
}

/// What became of settling an attempt.
#[derive(Debug)]
pub enum Recorded {
    /// It is on record.
    Applied,
    /// Somebody newer was there first: what is on record is the only answer.
    Superseded,
    /// The store could not say; it is tried again in the background, under the same nonce, unless the record [can never be
    /// read](crate::StoreErrorKind::Unreadable).
    Pending(StoreError),
}

#[derive(Clone, Debug)]
enum Settlement {
    Complete(Outcome),
    Release,
    InDoubt(Option<Outcome>),
}

impl<St: Store> Held<St> {
    pub(crate) fn new(engine: Engine<St>, attempt: Attempt) -> Self {
        Self { engine, attempt, arrival: None, has_copy: false }
    }

    /// The same, with its line of the trace.
    pub(crate) fn traced(mut self, arrival: Option<Arrival>) -> Self {
        self.arrival = arrival;
        self
    }

    /// The same, of a claim of which a copy may still arrive.
    pub(crate) fn copied(mut self, has_copy: bool) -> Self {
        self.has_copy = has_copy;
        self
    }

    /// Writes the line: the work has ended, and so many bytes are to be recorded of it.
    fn trace(&mut self, size: usize) {
        if let Some(arrival) = self.arrival.take() {
            arrival.ran(self.attempt.started().elapsed(), size);
        }
    }

    /// The attempt that may run.
    #[must_use]
    pub fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// What becomes of this attempt if its outcome is not known.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.attempt.recovery()
    }

    /// Records the outcome.
    ///
    /// # Cancel safety
    /// Dropped: it may or may not be recorded; what is not stays in flight until its lease ends.
    pub fn complete(self, outcome: Outcome) -> impl Future<Output = Recorded> {
        self.settle(Settlement::Complete(outcome))
    }

    /// Whether [`Held::release`] frees the key. Not under [`Recovery::Hold`] while a [step](Attempt::has_open_step) may have had its
    /// effect.
    #[must_use]
    pub fn may_release(&self) -> bool {
        self.attempt.may_release()
    }

    /// Frees the key: for certain nothing happened. Where it [may not](Held::may_release) be freed, it is in doubt instead.
    ///
    /// # Cancel safety
    /// As [`Held::complete`].
    pub fn release(self) -> impl Future<Output = Recorded> {
        let settlement = if self.may_release() { Settlement::Release } else { Settlement::InDoubt(None) };
        self.settle(settlement)
    }

    /// Says that nobody knows whether the effect happened, with the answer that is sent, if one is.
    ///
    /// # Cancel safety
    /// As [`Held::complete`].
    pub fn mark_in_doubt(self, response: Option<Outcome>) -> impl Future<Output = Recorded> {
        self.settle(Settlement::InDoubt(response))
    }

    /// No `async fn`, which would keep a second place for what it is given; nor are those above.
    fn settle(mut self, settlement: Settlement) -> impl Future<Output = Recorded> {
        self.trace(match &settlement {
            Settlement::Complete(outcome) | Settlement::InDoubt(Some(outcome)) => outcome.size(),
            Settlement::Release | Settlement::InDoubt(None) => 0,
        });
        async move {
            match settle_once(&self.engine.inner, &self.attempt, &settlement).await {
                Ok(Settled::Applied | Settled::AlreadyApplied) => Recorded::Applied,
                Ok(Settled::Superseded) => {
                    self.superseded();
                    Recorded::Superseded
                }
                Err(error) => {
                    if error.is_final() {
                        given_up(&self.attempt, &error);
                    } else {
                        tracing::warn!(attempt = ?self.attempt, error = %error, "not recorded yet; trying again in the background");
                        metrics::counter!("idempotency_recorded_late_total").increment(1);
                        let engine = self.engine.clone();
                        engine.inner.tracker.spawn(self.settle_until_answered(settlement));
                    }
                    Recorded::Pending(error)
                }
            }
        }
    }

    /// Tries again until the store answers, since this process alone knows what happened, or says that it never can.
    async fn settle_until_answered(self, settlement: Settlement) {
        let inner = Arc::clone(&self.engine.inner);
        let mut pauses = Pauses::in_background();
        pauses.pause().await;
        loop {
            match settle_once(&inner, &self.attempt, &settlement).await {
                Ok(Settled::Superseded) => return self.superseded(),
                Ok(_) => return,
                Err(error) if error.is_final() => return given_up(&self.attempt, &error),
                Err(error) => pauses.pause_after(&error).await,
            }
        }
    }

    fn superseded(&self) {
        let attempt = &self.attempt;
        tracing::warn!(?attempt, "superseded: what is on record counts");
        metrics::counter!("idempotency_superseded_total").increment(1);
        if self.has_copy {
            // When whoever came after us has freed the key, it would be granted, to nobody. What is granted under this nonce now is such
            // a grant: this attempt has ended, and its own was taken over.
            let Holder { id, nonce, .. } = *attempt.holder();
            self.engine.inner.abandon_until_answered(id, nonce);
        }
    }
}

fn settle_once<St: Store>(
    inner: &Inner<St>,
    attempt: &Attempt,
    settlement: &Settlement,
) -> impl Future<Output = Result<Settled, StoreError>> {
    let holder = attempt.holder();
    let store = &*inner.store;
    inner.within_timeout(async move {
        match settlement {
            Settlement::Complete(outcome) => store.complete(holder, outcome).await,
            Settlement::Release => store.release(holder, dead_for(inner.settings.store_timeout)).await,
            Settlement::InDoubt(response) => store.mark_in_doubt(holder, response.as_ref()).await,
        }
    })
}

/// Said aloud: this process alone knew how the attempt ended.
pub(crate) fn given_up(attempt: &Attempt, error: &StoreError) {
    tracing::error!(
        ?attempt,
        error = error as &dyn std::error::Error,
        "the record cannot be read, so the attempt's end is not on it"
    );
    metrics::counter!("idempotency_not_recorded_total").increment(1);
}

impl<St: Store> Drop for Held<St> {
    fn drop(&mut self) {
        self.engine.inner.renewals.stop(&self.attempt);
        self.trace(self.attempt.committed_size());
    }
}
