//! What steps are kept by: the trait, and the messages it is asked with.

use std::time::Duration;

use super::label::StepLabel;
use super::record::{CallRecord, LoggedEnd, StepResult};
use crate::{FencingToken, Fingerprint, Holder, Nonce, RecordId, StoreError};

/// Keeps steps, beside the records that they belong to: what was called, how it ended, and whether another call may follow.
///
/// Each operation is atomic per record and judged on the store's own clock at the time it is carried out. What each
/// answers in each state is in [`protocol`](super::protocol), and [`conformance::steps`](crate::conformance::steps) checks
/// every row of it. Programs use it through a [`Guard`](super::Guard).
///
/// Steps survive the release and the resolution of their record and are purged with it. A new life of a record's key begins without
/// steps.
///
/// # Cancel safety
/// Dropping the future of any operation may or may not carry it out. All of them may be repeated.
pub trait Steps: Send + Sync + 'static {
    /// Asks whether a call may be made. The one operation that decides; the call is on record when it answers [`Begun::Go`].
    fn begin_call(&self, ask: &BeginCall) -> impl Future<Output = Result<Begun, StoreError>> + Send;

    /// Reports how a call ended. Never fenced: the late report of a superseded worker is evidence.
    fn end_call(&self, report: &EndCall) -> impl Future<Output = Result<Ended, StoreError>> + Send;

    /// Settles a step whose outcome is unknown by what somebody found out.
    fn resolve_step(&self, resolve: &ResolveStep) -> impl Future<Output = Result<StepResolved, StoreError>> + Send;

    /// What is known of one step, with all of its calls.
    fn inspect_step(
        &self,
        id: &RecordId,
        label: &StepLabel,
    ) -> impl Future<Output = Result<Option<StepView>, StoreError>> + Send;

    /// Steps in the order of record ids and labels, a page at a time.
    fn list_steps(&self, list: &ListSteps) -> impl Future<Output = Result<StepPage, StoreError>> + Send;
}

/// A call that somebody wants to make.
#[derive(Clone, Debug)]
pub struct BeginCall {
    /// The attempt, which must still hold its claim.
    pub holder: Holder,
    /// Which step of the record.
    pub label: StepLabel,
    /// What every call of the step must repeat.
    pub request: Fingerprint,
    /// Made before asking, so that an asking whose answer was lost is recognised when it comes again.
    pub nonce: Nonce,
    /// When the caller gives up, counted from now.
    pub timeout: Duration,
    /// How long after that nobody else calls.
    pub quiet: Duration,
    /// More than this must be left of the attempt's lease.
    pub lease_needed: Duration,
    /// Whether it may follow a call whose outcome is unknown.
    pub again: Again,
}

/// Whether a call may follow one whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Not before that one is resolved.
    Never,
    /// The provider knows the step's key: for so long after the first call that may have been sent.
    Within(Duration),
}

/// The answer to a [`BeginCall`].
#[must_use = "a call that was begun counts as made"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Make the call. Again so when the asking is repeated while it is being made.
    Go {
        /// Its number, from 1.
        call: u32,
        /// How long ago the first call began that may have been sent; zero for the first.
        window_age: Duration,
    },
    /// No call; this is how the step stands.
    Stands {
        /// The last call's number.
        call: u32,
        /// The token of the attempt that made it.
        token: FencingToken,
        /// How it stands.
        standing: StepStanding,
    },
    /// The step stands for another request.
    RequestChanged,
    /// This nonce's call is over, or was given up. Ask with a new one.
    Over,
    /// The attempt does not hold its claim any more.
    Superseded,
    /// The attempt's lease does not last for the call.
    LeaseTooShort {
        /// What is left of it.
        lease_left: Duration,
    },
    /// No room for another call. Nothing was forgotten to make some.
    Full,
}

/// A step's state at one moment: what was stored and what time made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepStanding {
    /// A call is being made, or may still leave.
    Calling {
        /// Until nobody expects it to leave any more.
        time_left: Duration,
    },
    /// Done.
    Succeeded(StepResult),
    /// For certain not done: by a documented refusal, which is final, or, without one, because nothing was sent.
    Failed(Option<StepResult>),
    /// Nobody knows.
    Unknown {
        /// For how long.
        age: Duration,
    },
    /// It did not happen, somebody found out: another call may follow.
    Retryable,
}

impl StepStanding {
    /// Its name.
    #[must_use]
    pub const fn state(&self) -> StepState {
        match self {
            Self::Calling { .. } => StepState::Calling,
            Self::Succeeded(_) => StepState::Succeeded,
            Self::Failed(_) => StepState::Failed,
            Self::Unknown { .. } => StepState::Unknown,
            Self::Retryable => StepState::Retryable,
        }
    }
}

/// The states of a step that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepState {
    /// A call is being made, or may still leave.
    Calling,
    /// Done.
    Succeeded,
    /// For certain not done.
    Failed,
    /// Nobody knows.
    Unknown,
    /// It did not happen, somebody found out.
    Retryable,
}

impl StepState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Calling, Self::Succeeded, Self::Failed, Self::Unknown, Self::Retryable];

    /// The name used in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calling => "calling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Retryable => "retryable",
        }
    }
}

/// How a call ended, reported by whoever made it.
#[derive(Clone, Debug)]
pub struct EndCall {
    /// Which record.
    pub id: RecordId,
    /// Which step of it.
    pub label: StepLabel,
    /// The nonce that the call was begun with.
    pub nonce: Nonce,
    /// How it ended.
    pub end: LoggedEnd,
}

/// The answer to an [`EndCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is in the log, now or before.
    Logged {
        /// How the step stands with it.
        standing: StepStanding,
        /// What somebody should look at.
        alarm: Option<Alarm>,
    },
    /// The call never began, and now never will.
    NeverBegan,
    /// No such call is known: its record's life is over.
    Missing,
}

/// What a report contradicts: somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Alarm {
    /// An earlier call was done while another one was being made: the effect may happen twice.
    #[error("an earlier call was done while another one was being made")]
    DoneWhileCalling,
    /// Two calls were done. Under the same key at a provider that honours it this is one effect.
    #[error("two calls of the step were done")]
    DoneTwice,
    /// A call was done that was said not to have happened, or refused.
    #[error("a call was done that was said not to have happened")]
    DoneAfterAll,
}

/// What somebody found out about a step whose outcome is unknown.
#[derive(Clone, Debug)]
pub struct ResolveStep {
    /// Which record.
    pub id: RecordId,
    /// Which step of it.
    pub label: StepLabel,
    /// The number of the last call that the resolver saw. Another one on record means that the step has moved on.
    pub call_seen: u32,
    /// What is now known.
    pub verdict: StepVerdict,
    /// Who says so, for the record.
    pub who: String,
    /// Why, for the record.
    pub why: String,
}

/// What is now known about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepVerdict {
    /// It happened; this is the result that the handler gets.
    Happened(StepResult),
    /// It did not happen and **can no longer happen**: the provider was asked after its settle time, and the process that called is
    /// known dead. A paused process can still send what it was about to send; nothing here can stop it.
    DidNotHappen,
}

/// The answer to a [`ResolveStep`].
#[must_use = "a resolution that was not applied settles nothing"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepResolved {
    /// Done.
    Applied,
    /// Another call was made since; this resolver looked at an older one.
    Superseded,
    /// The step's outcome is not unknown.
    NotUnknown(StepState),
    /// There is no such step.
    Missing,
}

/// What an operator sees of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepEntry {
    /// Whose step it is.
    pub id: RecordId,
    /// What it is called.
    pub label: StepLabel,
    /// Its state, judged when the store answered.
    pub state: StepState,
    /// The last call's number: what a resolution names.
    pub call: u32,
    /// The token of the attempt that made it.
    pub token: FencingToken,
    /// How long it has been in this state.
    pub age: Duration,
    /// Who resolved it and why, if somebody did.
    pub resolution: Option<(String, String)>,
}

/// A step with its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepView {
    /// The step.
    pub entry: StepEntry,
    /// How it stands.
    pub standing: StepStanding,
    /// Every call that began, in order: also what a superseded worker reported late.
    pub calls: Vec<CallRecord>,
}

/// Which steps to list.
#[derive(Clone, Debug)]
pub struct ListSteps {
    /// Only those of this record.
    pub id: Option<RecordId>,
    /// Only those in this state.
    pub state: Option<StepState>,
    /// Only those after this one: a page's `next`.
    pub after: Option<(RecordId, StepLabel)>,
    /// At most so many.
    pub limit: usize,
}

impl Default for ListSteps {
    /// Of every record and in every state, from the beginning, 100 at most.
    fn default() -> Self {
        Self { id: None, state: None, after: None, limit: 100 }
    }
}

/// Some steps, in order.
#[derive(Clone, Debug, Default)]
pub struct StepPage {
    /// The steps.
    pub entries: Vec<StepEntry>,
    /// Where the next page starts, if there may be one.
    pub next: Option<(RecordId, StepLabel)>,
}
