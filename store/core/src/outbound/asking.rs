//! One call of a step, from its asking to its report.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::FutureExt as _;
use tokio::time::timeout;

use super::call::{Call, CallEnd};
use super::contract::{Again, BeginCall, Begun, EndCall, Ended, StepStanding, Steps};
use super::guard::{Guard, Step};
use super::open::Left;
use super::reporting::{heed, report, report_until_answered};
use crate::patience::within;
use crate::time::BootInstant;
use crate::{Attempt, Nonce, StoreError, StoreErrorKind};

/// Asks under one nonce and makes the call. Dropped while an asking may still be carried out, it reports that nothing was sent.
pub(super) struct Asking<'g, S: Steps> {
    guard: &'g Guard<S>,
    attempt: &'g Attempt,
    step: &'g Step,
    nonce: Nonce,
    /// From before the first asking: the store's deadline is not earlier than this one's.
    asked: BootInstant,
    unanswered: bool,
    /// How many askings had left the step open before this one, and what this one leaves.
    open: (u64, Left),
}

impl<'g, S: Steps> Asking<'g, S> {
    pub(super) fn new(guard: &'g Guard<S>, attempt: &'g Attempt, step: &'g Step) -> Self {
        let open = (attempt.steps().begins(&step.label), Left::Open);
        Self { guard, attempt, step, nonce: Nonce::random(), asked: BootInstant::now(), unanswered: false, open }
    }

    /// Asks, within the store timeout. A connection that turns out to be broken gets one more try under the same nonce, which is
    /// safe. What comes of an asking without an answer is nothing, as soon as the store answers again.
    pub(super) async fn ask(&mut self) -> Result<Begun, StoreError> {
        let provider = &self.guard.provider;
        let ask = BeginCall {
            holder: *self.attempt.holder(),
            label: self.step.label.clone(),
            request: self.step.request,
            nonce: self.nonce,
            timeout: provider.call_timeout,
            quiet: provider.quiet_period,
            lease_needed: self.guard.lease_needed(),
            again: self.guard.again(),
        };
        self.unanswered = true;
        let steps = &*self.guard.steps;
        let mut first_is_out = false;
        let asked = within(self.attempt.store_timeout(), async {
            match steps.begin_call(&ask).await {
                Err(error) if error.kind() == StoreErrorKind::Unavailable => {
                    first_is_out = true;
                    match steps.begin_call(&ask).await {
                        // The second try was not carried out; the first may have been.
                        Err(again) if again.kind() == StoreErrorKind::Busy => Err(error),
                        answer => answer,
                    }
                }
                answer => answer,
            }
        });
        let answer = asked.await;
        let may_have_begun = match &answer {
            // Busy says for certain that nothing was carried out; every other error may hide a call that counts as made.
            Err(error) => error.kind() != StoreErrorKind::Busy,
            // A copy of what was begun is the same call.
            Ok(Begun::Go { .. }) => false,
            // The first asking may still arrive, and begin a call that nobody makes. Where it is over, that one began it.
            Ok(_) => first_is_out,
        };
        self.unanswered = may_have_begun;
        let taken_back = may_have_begun && self.take_back().await;
        self.open.1 = match &answer {
            Ok(Begun::Stands { standing: StepStanding::Failed(_), .. }) => Left::Failed,
            Ok(Begun::Over) | Err(_) if may_have_begun && !taken_back => Left::Open,
            answer if nothing_begun(answer) => Left::NothingBegun,
            _ => Left::Open,
        };
        answer
    }

    /// Nobody will make the call that may have been begun. Whether it is known that it was not, or that this was the step's only one.
    async fn take_back(&mut self) -> bool {
        let ended = report(&*self.guard.steps, self.attempt.store_timeout(), &self.never_made()).await;
        self.unanswered = ended.is_err();
        matches!(ended, Ok(Ended::NeverBegan | Ended::Logged { standing: StepStanding::Failed(_), .. }))
    }

    fn never_made(&self) -> EndCall {
        self.end_call(&CallEnd::NotDone("the asking for it was given up".to_owned()))
    }

    fn end_call(&self, end: &CallEnd) -> EndCall {
        EndCall { id: *self.attempt.record_id(), label: self.step.label.clone(), nonce: self.nonce, end: end.logged() }
    }

    /// Makes the call that was begun, gives it up at its deadline, and reports how it ended: in the background, if the store does not
    /// answer at once. A panic is reported as unknown, and passed on.
    pub(super) async fn make<F: Future<Output = CallEnd>>(
        mut self,
        (number, in_window): (u32, bool),
        make: impl FnOnce(Call) -> F,
    ) -> (CallEnd, Option<Ended>) {
        let provider = &self.guard.provider;
        let deadline = self.asked.after(provider.call_timeout);
        let call = Call {
            number,
            reference: provider.key(self.attempt.record_id(), &self.step.label),
            place: provider.keys.as_ref().filter(|_| in_window).map(|keys| keys.place.clone()),
            token: self.attempt.token(),
            deadline,
        };
        let mut was_made = false;
        let made = async {
            was_made = true;
            make(call).await
        };
        let made = AssertUnwindSafe(until(deadline, made)).catch_unwind().await;
        let (end, panic) = match made {
            Ok(Some(end)) => (end, None),
            // A store that took so long to begin it: nothing was sent, and that is certain.
            Ok(None) if !was_made => (CallEnd::NotDone("its time was over before it was made".to_owned()), None),
            Ok(None) => (CallEnd::Unknown(format!("no end within {:?}", provider.call_timeout)), None),
            Err(panic) => (CallEnd::Unknown("the call panicked".to_owned()), Some(panic)),
        };
        let ended = self.log(&end).await;
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        (end, ended)
    }

    async fn log(&mut self, end: &CallEnd) -> Option<Ended> {
        let end_call = self.end_call(end);
        match report(&*self.guard.steps, self.attempt.store_timeout(), &end_call).await {
            Ok(ended) => {
                heed(&ended, &end_call);
                if matches!(ended, Ended::Logged { standing: StepStanding::Failed(_), .. }) {
                    self.open.1 = Left::Failed;
                }
                Some(ended)
            }
            Err(error) => {
                tracing::warn!(attempt = ?self.attempt, step = %self.step.label, %error, "the end of a call is not recorded yet");
                report_until_answered(Arc::clone(&self.guard.steps), self.attempt, end_call);
                None
            }
        }
    }
}

impl<S: Steps> Drop for Asking<'_, S> {
    fn drop(&mut self) {
        if self.unanswered {
            report_until_answered(Arc::clone(&self.guard.steps), self.attempt, self.never_made());
        }
        let (before, left) = self.open;
        self.attempt.steps().ends(&self.step.label, before, left);
    }
}

fn nothing_begun(answer: &Result<Begun, StoreError>) -> bool {
    matches!(answer, Ok(Begun::LeaseTooShort { .. } | Begun::Full | Begun::Superseded | Begun::Over) | Err(_))
}

/// Gives `work` up at `deadline`, on a clock that runs through suspend. The clock is looked at before each step of `work`, so that one who
/// stood still does not go on with it.
async fn until<T>(deadline: BootInstant, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let watched = std::future::poll_fn(|context| {
        if BootInstant::now() >= deadline {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    });
    timeout(deadline.since(BootInstant::now()), watched).await.unwrap_or(None)
}

impl<S: Steps> Guard<S> {
    fn again(&self) -> Again {
        match (&self.policy, &self.provider.keys) {
            (super::Policy::Retry(_), Some(keys)) => Again::Within(keys.window.usable(self.provider.call_timeout)),
            _ => Again::Never,
        }
    }
}
