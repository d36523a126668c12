//! What a handler answers when a guarded step came to no decision.

use std::time::Duration;

use idempotency::outbound::StepError;

use super::{Refusal, soon};

/// Why a guarded step was not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotCalled {
    /// The external service could not be reached, or the request to it not be made.
    Unreachable,
    /// The attempt's lease does not last for the call.
    LeaseTooShort,
    /// The store has no room for another call.
    StoreFull,
    /// The store could not say whether a call may be made.
    StoreUnavailable,
}

impl NotCalled {
    pub(super) const fn problem_type(self) -> &'static str {
        match self {
            Self::Unreachable => "upstream-unavailable",
            Self::LeaseTooShort => "lease-too-short",
            Self::StoreFull => "store-full",
            Self::StoreUnavailable => "store-unavailable",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Unreachable => "A service that this operation needs is not available",
            Self::LeaseTooShort => "There is not enough time for this operation",
            Self::StoreFull => "The idempotency store is full",
            Self::StoreUnavailable => "The idempotency store is not available",
        }
    }
}

/// For a handler that returns `Result<_, Refusal>`: `guard.call(&attempt, &step, make).await?`.
///
/// | | answer | the key |
/// |---|---|---|
/// | `OutcomeUnknown` | 409 `outcome-unknown`, `Retry-After` where asking again can find out | in doubt under `Hold`, free under `Rerun` |
/// | `NotDone`, `LeaseTooShort`, `Full`, `Store` | 503 with `Retry-After` | free; under `Hold` after another step that may have happened: in doubt, and the answer is 409 `outcome-unknown` |
/// | `Superseded` | what is on record; while that is not known, 409 `request-in-flight` with `Retry-After` | untouched |
/// | `RequestChanged`, `ResultNotKept` | 500, without `Retry-After` | in doubt under `Hold`, free under `Rerun`, so that a mended handler can go on; a step that was refused counts as failed, and leaves it free under `Hold` as well |
///
/// What the answer does not say goes to the log.
impl From<StepError> for Refusal {
    fn from(error: StepError) -> Self {
        tracing::warn!(error = &error as &dyn std::error::Error, "a guarded step came to no decision");
        match error {
            StepError::OutcomeUnknown { label, call, retry_after, .. } => {
                Self::StepUnknown { step: label, call, retry_after }
            }
            StepError::RequestChanged(step) => Self::StepRequestChanged { step },
            StepError::ResultNotKept { step, decided } => Self::StepResultNotKept { step, decided },
            // Somebody newer is at work, or was.
            StepError::Superseded => Self::in_flight(Duration::ZERO),
            StepError::LeaseTooShort { .. } => Self::not_called(NotCalled::LeaseTooShort),
            StepError::Full => Self::not_called(NotCalled::StoreFull),
            StepError::Store(_) => Self::not_called(NotCalled::StoreUnavailable),
            // Also what a later release says beyond these: each of them is an error because nothing was sent now.
            _ => Self::not_called(NotCalled::Unreachable),
        }
    }
}

impl Refusal {
    pub(crate) fn not_called(why: NotCalled) -> Self {
        Self::StepNotCalled { why, retry_after: soon() }
    }

    /// Nobody knows whether it took effect, and asking again helps where the handler may run again.
    pub(crate) fn unknown_for_now() -> Self {
        Self::OutcomeUnknown { since: None, attempt: None, retry_after: Some(soon()) }
    }

    /// Whether it says that nobody knows what happened.
    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. } | Self::StepUnknown { .. } | Self::NotRecorded { .. })
    }
}
