//! How a guarded step ends.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::label::StepLabel;
use crate::StoreError;

/// What came of a step: the provider's own decision, the same whenever it is asked again.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOutcome {
    /// Which decision.
    pub decision: Decision,
    /// It comes from the record; nothing was called now.
    pub replayed: bool,
}

/// A provider's decision about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Done, with this result.
    Done(Bytes),
    /// Refused, as the provider documents its refusals: for certain not done.
    Refused(Bytes),
}

impl Decision {
    /// Which one it is, without its result.
    #[must_use]
    pub const fn decided(&self) -> Decided {
        match self {
            Self::Done(_) => Decided::Done,
            Self::Refused(_) => Decided::Refused,
        }
    }
}

/// Which decision it was, where its result cannot be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// Done.
    Done,
    /// Refused: for certain not done.
    Refused,
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Refused => "refused",
        })
    }
}

/// Why there is no decision. "Now" is in this one [`Guard::call`](super::Guard::call): an earlier one, of this run or of another, may have
/// sent something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// For certain nothing was sent, and no earlier call is in doubt. The step may be called again.
    #[error("nothing was sent: {0}")]
    NotDone(String),
    /// Nobody knows whether it happened, and it was not called again.
    #[error("the outcome of step `{label}` is unknown after call {call}: {why}")]
    OutcomeUnknown {
        /// Which step.
        label: StepLabel,
        /// The last call's number.
        call: u32,
        /// When asking again may help; none when somebody has to resolve it, or when the record itself is held.
        retry_after: Option<Duration>,
        /// What is known.
        why: String,
    },
    /// The step stands for another request. It is a bug of the handler: the same label must come with the same request.
    #[error("step `{0}` was called before with another request")]
    RequestChanged(StepLabel),
    /// It was decided, and the result was too long to keep.
    #[error("step `{step}` was {decided}, and its result was too long to keep")]
    ResultNotKept {
        /// Which step.
        step: StepLabel,
        /// What was decided.
        decided: Decided,
    },
    /// The attempt does not hold its claim any more, so no call was made, or none again.
    #[error("the attempt was superseded")]
    Superseded,
    /// The attempt's lease does not last for the call; nothing was sent now. A lease, of which two thirds are left at worst, must be longer
    /// than call timeout and margin.
    #[error("the lease has {left:?} left and {needed:?} are needed for the call")]
    LeaseTooShort {
        /// What is left of it.
        left: Duration,
        /// What must be.
        needed: Duration,
    },
    /// The store has no room for another call; nothing was sent now.
    #[error("the store has no room for another call")]
    Full,
    /// The store could not say, and nothing was sent now.
    #[error("the store could not say")]
    Store(#[from] StoreError),
}

/// Why a guard is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPolicy {
    /// Calling again needs a key that the provider honours.
    #[error("the policy `Retry` needs a provider that takes a key")]
    RetryWithoutKey,
}
