//! Why there is no response.

use http::Method;
use idempotency::outbound::{Decided, StepError, StepLabel};

use crate::Refusal;
use crate::body::BoxError;

/// Why a guarded client gives no response. [`Refusal::from`] makes an answer of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboundError {
    /// The step came to no decision, and the client was not asked or gave no error.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The step came to no decision, because of this error of the client.
    #[error("{step}")]
    Client {
        /// What is known of the step.
        step: StepError,
        /// The client's last error.
        #[source]
        source: BoxError,
    },
    /// The request's extensions name no step. Nothing was sent now.
    #[error("the request names no step of an attempt")]
    NoStep,
    /// The provider wants its key where the layer cannot put it: in a field, without a
    /// [function](super::OutboundLayer::key_field) for it, or in a header whose name is none. Nothing was sent now.
    #[error("the key cannot be put where the provider wants it")]
    KeyNotPlaced,
    /// The request's body broke off. Nothing was sent now.
    #[error("the request body could not be read")]
    RequestUnreadable(#[source] BoxError),
    /// The request's body is too long. Nothing was sent now.
    #[error("the request body is longer than {limit} bytes")]
    RequestTooLarge {
        /// The most bytes that are read.
        limit: usize,
    },
    /// The step was decided, and its result is none that this layer wrote, as when it was resolved with other bytes than those of
    /// [`result_of`](super::result_of).
    #[error("the result of step `{step}`, which was {decided}, is no response")]
    ResultUnreadable {
        /// Which step.
        step: StepLabel,
        /// What was decided.
        decided: Decided,
    },
    /// The client is not ready. Nothing was sent now; the step, if it is one, was not even asked for, and may be done.
    #[error("the client is not ready")]
    NotReady(#[source] BoxError),
    /// A request without a step was passed on, and failed.
    #[error("the request failed")]
    Unguarded {
        /// Its method: a safe one has no effect, whatever became of it.
        method: Method,
        /// The client's error.
        #[source]
        source: BoxError,
    },
}

impl OutboundError {
    /// What is known of the step, if it was asked for.
    #[must_use]
    pub const fn step(&self) -> Option<&StepError> {
        match self {
            Self::Step(step) | Self::Client { step, .. } => Some(step),
            _ => None,
        }
    }
}

/// As of the [`StepError`] inside. `ResultUnreadable` is answered like a result that was not kept: the step was decided, and the handler cannot
/// go on. Of an unguarded request that failed nobody knows whether it took effect, unless its method is safe: 409 `outcome-unknown`, which
/// asks for a retry where the key is freed, under `Rerun`. For all else nothing had an effect now: 503 `upstream-unavailable` with
/// `Retry-After`, and the reason in the log.
impl From<OutboundError> for Refusal {
    fn from(error: OutboundError) -> Self {
        let error = match error {
            OutboundError::Step(step) => return step.into(),
            OutboundError::Client { step, source } => {
                tracing::debug!(error = &*source as &dyn std::error::Error, "the client gave an error");
                return step.into();
            }
            other => other,
        };
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a call to an external API was not made as it should"
        );
        match error {
            // Under `Hold` the layer that holds the key takes the `Retry-After` back.
            OutboundError::Unguarded { method, .. } if !method.is_safe() => Self::unknown_for_now(),
            OutboundError::ResultUnreadable { step, decided } => Self::StepResultNotKept { step, decided },
            _ => Self::not_called(crate::NotCalled::Unreachable),
        }
    }
}
