//! The guard.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};

use super::asking::Asking;
use super::call::{Call, CallEnd};
use super::contract::{Begun, Ended, ResolveStep, StepResolved, StepStanding, StepVerdict, Steps};
use super::error::{Decided, Decision, InvalidPolicy, StepError, StepOutcome};
use super::label::{InvalidStepLabel, StepLabel};
use super::policy::{Found, Inquiry, Policy, Reconcile};
use super::provider::Provider;
use super::record::StepResult;
use crate::patience::{jittered, within};
use crate::{Attempt, Fingerprint, Recovery};

/// Guards the calls to one provider under one policy: see [`outbound`](super). Cheap to clone.
pub struct Guard<S> {
    pub(super) steps: Arc<S>,
    pub(super) provider: Provider,
    pub(super) policy: Policy,
}

/// One call to be made under an attempt, whatever it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub(super) label: StepLabel,
    pub(super) request: Fingerprint,
}

impl Step {
    /// A step by this name, and what every call of it must repeat: everything that the provider acts on.
    ///
    /// # Errors
    /// [`InvalidStepLabel`] when the name is no label.
    pub fn new(label: &str, request: Fingerprint) -> Result<Self, InvalidStepLabel> {
        Ok(Self { label: StepLabel::parse(label)?, request })
    }

    /// Its name.
    #[must_use]
    pub const fn label(&self) -> &StepLabel {
        &self.label
    }
}

impl<S: Steps> Guard<S> {
    /// A guard that keeps its steps in the store whose records the attempts are of.
    ///
    /// # Errors
    /// [`InvalidPolicy`] for [`Policy::Retry`] with a provider that takes no key.
    pub fn new(steps: S, provider: Provider, policy: Policy) -> Result<Self, InvalidPolicy> {
        if matches!(policy, Policy::Retry(_)) && provider.keys.is_none() {
            return Err(InvalidPolicy::RetryWithoutKey);
        }
        Ok(Self { steps: Arc::new(steps), provider, policy })
    }

    /// The provider.
    pub const fn provider(&self) -> &Provider {
        &self.provider
    }

    /// What `step` came to: replayed if it was decided before, else by calling `make` if a call may be made. `make` sends the request
    /// and says how it ended; it is called again only as the policy says, and must then send the same.
    ///
    /// # Errors
    /// [`StepError`]: nothing was sent now, or nobody knows. A store that goes away, has no room or has too short a lease left *after* a call of
    /// unknown outcome is [`OutcomeUnknown`](StepError::OutcomeUnknown) as well.
    ///
    /// # Panics
    /// With the panic of `make`, which is reported as an unknown outcome first.
    ///
    /// # Cancel safety
    /// Dropped before the call was begun: nothing was sent, and that is recorded in the background. Dropped while the call is being
    /// made: its outcome is unknown once deadline and quiet period are over. Dropped later: it may or may not be recorded.
    pub async fn call<W, F>(&self, attempt: &Attempt, step: &Step, make: W) -> Result<StepOutcome, StepError>
    where
        W: FnMut(Call) -> F,
        F: Future<Output = CallEnd>,
    {
        let mut doubt = None;
        let called = self.call_until_decided(attempt, step, make, &mut doubt).await;
        called.map_err(|error| with_doubt(doubt, error))
    }

    /// Leaves in `doubt` what is unknown of the step by a call that was made now, or was being inquired about.
    async fn call_until_decided<W, F>(
        &self,
        attempt: &Attempt,
        step: &Step,
        mut make: W,
        doubt: &mut Option<StepError>,
    ) -> Result<StepOutcome, StepError>
    where
        W: FnMut(Call) -> F,
        F: Future<Output = CallEnd>,
    {
        let mut calls = 0;
        let mut inquiries = 0;
        let mut waited_until = None;
        loop {
            let mut asking = Asking::new(self, attempt, step);
            let (call, standing) = match asking.ask().await? {
                Begun::Go { call, window_age } => {
                    calls += 1;
                    let made = asking.make((call, self.is_in_window(window_age)), &mut make).await;
                    match self.conclude(attempt, step, call, made) {
                        Err(error @ (StepError::NotDone(_) | StepError::OutcomeUnknown { .. }))
                            if self.calls_left(calls) =>
                        {
                            // Not done is said only where no earlier call is in doubt.
                            *doubt = matches!(error, StepError::OutcomeUnknown { .. }).then_some(error);
                            waited_until = None;
                            self.pause(calls).await;
                            continue;
                        }
                        concluded => return concluded,
                    }
                }
                Begun::Stands { call, standing, .. } => (call, standing),
                Begun::Over => continue,
                Begun::RequestChanged => return Err(StepError::RequestChanged(step.label.clone())),
                Begun::Superseded => return Err(StepError::Superseded),
                Begun::Full => return Err(StepError::Full),
                Begun::LeaseTooShort { lease_left } => {
                    let needed = self.lease_needed();
                    let until = *waited_until.get_or_insert_with(|| Instant::now() + needed);
                    if self.renewed(attempt, until).await {
                        continue;
                    }
                    return Err(StepError::LeaseTooShort { left: lease_left, needed });
                }
            };
            match (standing, &self.policy) {
                (StepStanding::Succeeded(result), _) => return replayed(step, result, Decided::Done),
                (StepStanding::Failed(Some(result)), _) => return replayed(step, result, Decided::Refused),
                (StepStanding::Unknown { age }, Policy::Reconcile(hook)) if inquiries < MOST_INQUIRIES => {
                    inquiries += 1;
                    *doubt = Some(unknown(attempt, step, call, Some(SOON), "it was being inquired about"));
                    if let Some(wait) = self.reconcile(attempt, step, (call, age), hook).await? {
                        return Err(unknown(attempt, step, call, Some(wait), "the provider cannot say yet"));
                    }
                }
                (StepStanding::Calling { time_left }, _) => {
                    return Err(unknown(attempt, step, call, Some(time_left), "it is being called elsewhere"));
                }
                (StepStanding::Unknown { .. }, Policy::Retry(_)) => {
                    return Err(unknown(attempt, step, call, None, "the provider may have forgotten its key"));
                }
                _ => return Err(unknown(attempt, step, call, None, "somebody has to resolve it")),
            }
        }
    }

    /// What a call that was made, and its report, come to.
    fn conclude(
        &self,
        attempt: &Attempt,
        step: &Step,
        call: u32,
        (end, ended): (CallEnd, Option<Ended>),
    ) -> Result<StepOutcome, StepError> {
        let standing = match ended {
            Some(Ended::Logged { standing, .. }) => Some(standing),
            _ => None,
        };
        let first = |decision| Ok(StepOutcome { decision, replayed: false });
        match (end, standing) {
            // The whole result, though it may be too long to keep.
            (CallEnd::Done(result), Some(StepStanding::Succeeded(StepResult::TooLong)) | None) => {
                first(Decision::Done(result))
            }
            (CallEnd::Done(_), Some(StepStanding::Succeeded(StepResult::Kept(result)))) => {
                first(Decision::Done(result))
            }
            (CallEnd::Done(result), Some(_)) => first(Decision::Done(result)),
            (CallEnd::Refused(result), Some(StepStanding::Failed(_))) => first(Decision::Refused(result)),
            // Nothing was called before the first.
            (CallEnd::Refused(result), None) if call == 1 => first(Decision::Refused(result)),
            (CallEnd::NotDone(why), Some(StepStanding::Failed(_))) => Err(StepError::NotDone(why)),
            (CallEnd::NotDone(why), None) if call == 1 => Err(StepError::NotDone(why)),
            // An earlier call turned out to have succeeded.
            (_, Some(StepStanding::Succeeded(result))) => replayed(step, result, Decided::Done),
            (end, _) => {
                let why = match end {
                    CallEnd::Unknown(why) => why,
                    CallEnd::NotDone(why) => format!("an earlier call may have happened; this one was not sent: {why}"),
                    _ => "an earlier call may have happened; this one was refused".to_owned(),
                };
                let retry_after = match &self.policy {
                    Policy::Hold => None,
                    Policy::Reconcile(_) => Some(self.provider.settle_time),
                    Policy::Retry(retry) => Some(retry.pause),
                };
                Err(unknown(attempt, step, call, retry_after, &why))
            }
        }
    }

    /// Asks the hook and resolves the step by its answer. How long to wait before asking again, if nothing is known yet.
    async fn reconcile(
        &self,
        attempt: &Attempt,
        step: &Step,
        (call, age): (u32, Duration),
        hook: &Reconcile,
    ) -> Result<Option<Duration>, StepError> {
        let settle_time = self.provider.settle_time;
        if age < settle_time {
            return Ok(Some(settle_time - age));
        }
        let (id, label) = (*attempt.record_id(), step.label.clone());
        let reference = self.provider.key(&id, &label);
        let inquiry = Inquiry { id, label: label.clone(), call, reference, age };
        let asked = AssertUnwindSafe(async { hook.ask(inquiry).await }).catch_unwind();
        let verdict = match timeout(self.provider.call_timeout, asked).await {
            Ok(Ok(Found::Happened(result))) => StepVerdict::Happened(StepResult::of(result)),
            Ok(Ok(Found::DidNotHappen)) => StepVerdict::DidNotHappen,
            Ok(Ok(Found::StillUnknown)) => return Ok(Some(settle_time)),
            Ok(Err(_)) => {
                tracing::error!(step = %label, "the reconcile hook panicked");
                return Ok(Some(settle_time));
            }
            Err(_) => {
                tracing::warn!(step = %label, "the reconcile hook did not answer in time");
                return Ok(Some(settle_time));
            }
        };
        let why = format!("asked by attempt {} of token {}", attempt.number(), attempt.token());
        let who = format!("reconcile hook of {}", self.provider.name());
        let resolve = ResolveStep { id, label, call_seen: call, verdict, who, why };
        match within(attempt.store_timeout(), self.steps.resolve_step(&resolve)).await? {
            StepResolved::Missing => Err(StepError::Superseded),
            // Whatever it was, the store says what it is now.
            _ => Ok(None),
        }
    }

    pub(super) fn lease_needed(&self) -> Duration {
        self.provider.call_timeout.saturating_add(self.provider.lease_margin)
    }

    fn is_in_window(&self, window_age: Duration) -> bool {
        let keys = self.provider.keys.as_ref();
        keys.is_some_and(|keys| window_age < keys.window.usable(self.provider.call_timeout))
    }

    fn calls_left(&self, calls: u32) -> bool {
        matches!(&self.policy, Policy::Retry(retry) if calls < retry.calls.get())
    }

    async fn pause(&self, calls: u32) {
        if let Policy::Retry(retry) = &self.policy {
            sleep(jittered(retry.pause.saturating_mul(1 << calls.min(6)).min(LONGEST_PAUSE))).await;
        }
    }

    /// Waits until the attempt's lease has been renewed for long enough. Not for one that nobody renews.
    async fn renewed(&self, attempt: &Attempt, until: Instant) -> bool {
        loop {
            if Instant::now() >= until || attempt.is_lost() || attempt.is_finished() {
                return false;
            }
            sleep(RENEWAL_POLL).await;
            if attempt.time_left() > self.lease_needed() {
                return true;
            }
        }
    }
}

/// A decision that is on record.
fn replayed(step: &Step, result: StepResult, decided: Decided) -> Result<StepOutcome, StepError> {
    let decision = match (result, decided) {
        (StepResult::Kept(result), Decided::Done) => Decision::Done(result),
        (StepResult::Kept(result), Decided::Refused) => Decision::Refused(result),
        (StepResult::TooLong, _) => return Err(StepError::ResultNotKept { step: step.label.clone(), decided }),
    };
    Ok(StepOutcome { decision, replayed: true })
}

/// What would say that nothing was sent says so only where there is no doubt.
fn with_doubt(doubt: Option<StepError>, error: StepError) -> StepError {
    match (doubt, error) {
        (
            Some(StepError::OutcomeUnknown { label, call, retry_after, why }),
            error @ (StepError::Store(_) | StepError::Full | StepError::LeaseTooShort { .. }),
        ) => StepError::OutcomeUnknown { label, call, retry_after, why: format!("{why}, and then: {error}") },
        (_, error) => error,
    }
}

fn unknown(attempt: &Attempt, step: &Step, call: u32, retry_after: Option<Duration>, why: &str) -> StepError {
    // A record that is held answers no retry.
    let retry_after = retry_after.filter(|_| attempt.recovery() == Recovery::Rerun);
    StepError::OutcomeUnknown { label: step.label.clone(), call, retry_after, why: why.to_owned() }
}

impl<S> Clone for Guard<S> {
    fn clone(&self) -> Self {
        Self { steps: Arc::clone(&self.steps), provider: self.provider.clone(), policy: self.policy.clone() }
    }
}

impl<S> fmt::Debug for Guard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("provider", &self.provider).field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// How often the hook is asked in one go: others may resolve, call and leave the step unknown again meanwhile.
const MOST_INQUIRIES: u32 = 3;

/// When to ask again after a store that went away while a step was inquired about.
const SOON: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const RENEWAL_POLL: Duration = Duration::from_millis(20);
