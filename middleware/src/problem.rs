//! What the layer answers when the handler does not run.

mod json;
mod responder;
mod step;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use idempotency::outbound::{Decided, StepLabel};
use idempotency::{FencingToken, InvalidKey, Timestamp};

pub(crate) use self::json::Problems;
pub use self::responder::Responder;
pub use self::step::NotCalled;
use crate::Verdict;
use crate::fencing::InvalidFencingToken;
use crate::header_key::InvalidKeyHeader;
use crate::key_time::WrongKeyFormat;

/// Why the layer answered instead of the handler. It is in the extensions of every response that the layer
/// makes, so that a layer outside can log and count it.
///
/// **A 409 or 503 of the layer is retryable if and only if it carries `Retry-After`.**
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The route requires a key and the request has none.
    KeyMissing,
    /// The request's key breaks a rule.
    KeyInvalid(KeyFault),
    /// It cannot be told who the key belongs to.
    ScopeMissing {
        /// Our own stack should have set it: 500 instead of 400.
        ours: bool,
    },
    /// The key stands for another request.
    KeyReused,
    /// The first request runs.
    InFlight {
        /// When to ask again.
        retry_after: Duration,
    },
    /// An attempt ended and nobody knows whether its effect happened.
    OutcomeUnknown {
        /// Since when; none when the record could not be read.
        since: Option<Timestamp>,
        /// The attempt that ended; none when the record could not be read.
        attempt: Option<u32>,
        /// When to ask again, where asking again can find out.
        retry_after: Option<Duration>,
    },
    /// It was executed and its answer is not kept.
    ResponseNotKept {
        /// The status of the first answer.
        first_status: u16,
        /// When it completed.
        completed_at: Timestamp,
        /// Where the result can be looked up.
        location: Option<Box<str>>,
        /// What to answer: 410, or as set.
        answer: StatusCode,
    },
    /// The key is too old to know whether it was executed.
    KeyExpired {
        /// What to answer: 410, or 400 to a sender that would take 410 for good.
        answer: StatusCode,
    },
    /// The request's body is too large to be read for its fingerprint.
    RequestTooLarge {
        /// The most bytes that are read; none where it was a limit outside of the layer, such as axum's `DefaultBodyLimit`.
        limit: Option<u64>,
    },
    /// The request's body broke off.
    RequestUnreadable,
    /// The handler panicked. Whether its effect happened is not known.
    HandlerPanicked,
    /// The store could not be asked. Nothing ran.
    StoreUnavailable {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The store has no room for another record. Nothing ran.
    StoreFull {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The handler ran, and its outcome could not be recorded in time. A repeat under the same key is safe.
    NotRecorded {
        /// When to ask again.
        retry_after: Duration,
    },
    /// The route requires a fencing token and the request has none.
    FencingTokenMissing,
    /// The request's fencing token breaks a rule.
    FencingTokenInvalid(InvalidFencingToken),
    /// The fence has admitted somebody newer. Nothing was written.
    FencingTokenSuperseded {
        /// The token that it admitted last.
        current: FencingToken,
    },
    /// Somebody else holds the lease. Nothing ran.
    LeaseHeld {
        /// When to ask again.
        retry_after: Duration,
    },
    /// Nobody knows whether a guarded step of the handler happened.
    StepUnknown {
        /// Which step.
        step: StepLabel,
        /// The last call's number.
        call: u32,
        /// When to ask again, where asking again can find out.
        retry_after: Option<Duration>,
    },
    /// A guarded step of the handler was not called. What the handler did before stands.
    StepNotCalled {
        /// Why not.
        why: NotCalled,
        /// When to ask again.
        retry_after: Duration,
    },
    /// The handler asked for another request under the name of an earlier step: a bug of the handler.
    StepRequestChanged {
        /// Which step.
        step: StepLabel,
    },
    /// A guarded step was decided, and its result cannot be given: it was too long to keep, or is none that the layer wrote.
    StepResultNotKept {
        /// Which step.
        step: StepLabel,
        /// What was decided.
        decided: Decided,
    },
}

/// Which rule a key breaks. Never says what the key was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// A rule for the header.
    #[error(transparent)]
    Header(#[from] InvalidKeyHeader),
    /// A rule for keys, wherever they come from.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The format that the route asks for.
    #[error(transparent)]
    Format(#[from] WrongKeyFormat),
    /// The key is dated further ahead than the allowed drift.
    #[error("the key is dated in the future")]
    FromTheFuture,
}

impl Refusal {
    /// The record was written by a release that this one cannot read.
    pub(crate) const UNREADABLE: Self = Self::OutcomeUnknown { since: None, attempt: None, retry_after: None };

    /// In flight, for a client that should ask again after about as long as the lease still lasts: at most 2 s,
    /// and up to 1 s more so that many waiting clients do not come at once.
    pub(crate) fn in_flight(lease_left: Duration) -> Self {
        Self::in_flight_with(lease_left, Duration::from_millis(rand::random_range(0..1000)))
    }

    /// The store could not be asked.
    pub(crate) fn store_unavailable() -> Self {
        Self::StoreUnavailable { retry_after: soon() }
    }

    /// The store has no room.
    pub(crate) fn store_full() -> Self {
        Self::StoreFull { retry_after: soon() }
    }

    /// The outcome could not be recorded in time.
    pub(crate) fn not_recorded() -> Self {
        Self::NotRecorded { retry_after: soon() }
    }

    /// Somebody else holds the lease for so long, if they do not renew it.
    #[must_use]
    pub fn lease_held(lease_left: Duration) -> Self {
        let jitter = Duration::from_millis(rand::random_range(0..1000));
        Self::LeaseHeld { retry_after: whole_seconds(lease_left.min(LONGEST_WAIT) + jitter) }
    }

    fn in_flight_with(lease_left: Duration, jitter: Duration) -> Self {
        Self::InFlight { retry_after: whole_seconds(lease_left.min(LONGEST_WAIT) + jitter) }
    }

    /// The status that is answered.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyInvalid(_) | Self::ScopeMissing { ours: false } | Self::RequestUnreadable => {
                StatusCode::BAD_REQUEST
            }
            Self::ScopeMissing { ours: true }
            | Self::HandlerPanicked
            | Self::StepRequestChanged { .. }
            | Self::StepResultNotKept { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            Self::FencingTokenInvalid(_) => StatusCode::BAD_REQUEST,
            Self::FencingTokenMissing => StatusCode::PRECONDITION_REQUIRED,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InFlight { .. }
            | Self::OutcomeUnknown { .. }
            | Self::StepUnknown { .. }
            | Self::FencingTokenSuperseded { .. }
            | Self::LeaseHeld { .. } => StatusCode::CONFLICT,
            Self::ResponseNotKept { answer, .. } | Self::KeyExpired { answer } => *answer,
            Self::RequestTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::StoreUnavailable { .. }
            | Self::StoreFull { .. }
            | Self::NotRecorded { .. }
            | Self::StepNotCalled { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The last segment of the problem's `type`. Stable: clients match on it.
    #[must_use]
    pub fn problem_type(&self) -> &'static str {
        match self {
            Self::KeyMissing => "idempotency-key-missing",
            Self::KeyInvalid(_) => "idempotency-key-invalid",
            Self::ScopeMissing { .. } => "idempotency-scope-missing",
            Self::KeyReused => "idempotency-key-reused",
            Self::InFlight { .. } => "request-in-flight",
            Self::OutcomeUnknown { .. } | Self::StepUnknown { .. } => "outcome-unknown",
            Self::ResponseNotKept { .. } => "response-not-kept",
            Self::KeyExpired { .. } => "key-expired",
            Self::RequestTooLarge { .. } => "request-too-large",
            Self::RequestUnreadable => "request-unreadable",
            Self::HandlerPanicked => "handler-panicked",
            Self::StoreUnavailable { .. } | Self::NotRecorded { .. } => "store-unavailable",
            Self::StoreFull { .. } => "store-full",
            Self::FencingTokenMissing => "fencing-token-missing",
            Self::FencingTokenInvalid(_) => "fencing-token-invalid",
            Self::FencingTokenSuperseded { .. } => "fencing-token-superseded",
            Self::LeaseHeld { .. } => "lease-held",
            Self::StepNotCalled { why, .. } => why.problem_type(),
            Self::StepRequestChanged { .. } => "step-request-changed",
            Self::StepResultNotKept { .. } => "step-result-not-kept",
        }
    }

    /// The problem's `title`: the same for every occurrence of a type.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::KeyMissing => "The idempotency key is missing",
            Self::KeyInvalid(_) => "The idempotency key is not valid",
            Self::ScopeMissing { .. } => "The owner of the idempotency key is not known",
            Self::KeyReused => "The idempotency key was used for another request",
            Self::InFlight { .. } => "A request with this idempotency key is being processed",
            Self::OutcomeUnknown { .. } | Self::StepUnknown { .. } => "The outcome of the first request is not known",
            Self::ResponseNotKept { .. } => "The request was executed and its response is no longer kept",
            Self::KeyExpired { .. } => "The idempotency key is too old",
            Self::RequestTooLarge { .. } => "The request body is too large",
            Self::RequestUnreadable => "The request body could not be read",
            Self::HandlerPanicked => "The service failed while it worked on the request",
            Self::StoreUnavailable { .. } | Self::NotRecorded { .. } => "The idempotency store is not available",
            Self::StoreFull { .. } => "The idempotency store is full",
            Self::FencingTokenMissing => "The fencing token is missing",
            Self::FencingTokenInvalid(_) => "The fencing token is not valid",
            Self::FencingTokenSuperseded { .. } => "A newer fencing token was here",
            Self::LeaseHeld { .. } => "Somebody else holds the lease",
            Self::StepNotCalled { why, .. } => why.title(),
            Self::StepRequestChanged { .. } => "A step was repeated with another request",
            Self::StepResultNotKept { .. } => "The result of a step is not kept",
        }
    }

    /// The problem's `detail`: what happened, and what the client can do.
    #[must_use]
    pub fn detail(&self) -> Cow<'static, str> {
        match self {
            Self::KeyMissing => "This operation requires an idempotency key, and the request carries none.",
            Self::KeyInvalid(fault) => return format!("Nothing was executed: {fault}.").into(),
            Self::ScopeMissing { ours: false } => {
                "Nothing was executed: the request does not say who its idempotency key belongs to."
            }
            Self::ScopeMissing { ours: true } => "Nothing was executed, because of an error in the service.",
            Self::KeyReused => {
                "Nothing was executed: this idempotency key stands for a request that was not the same. \
                 Use a new key for a new request."
            }
            Self::InFlight { .. } => {
                "The first request with this idempotency key has not finished. Ask again with the same key."
            }
            Self::OutcomeUnknown { retry_after: None, .. } => {
                "The first request with this idempotency key ended, and it is not known whether it took effect. \
                 It is not executed again. Look the operation up before using a new key."
            }
            Self::OutcomeUnknown { retry_after: Some(_), .. } => {
                "The first request with this idempotency key ended, and it is not known whether it took effect. \
                 Ask again with the same key."
            }
            Self::ResponseNotKept { .. } => {
                "The request with this idempotency key was executed. Look the operation up; it is not executed again."
            }
            Self::KeyExpired { .. } => {
                "Nothing was executed: this idempotency key is older than the service remembers. \
                 Look the operation up before using a new key."
            }
            Self::RequestTooLarge { limit: None } => "Nothing was executed: the request body is too large.",
            Self::RequestTooLarge { limit: Some(limit) } => {
                return format!("Nothing was executed: a request with an idempotency key may have {limit} bytes.")
                    .into();
            }
            Self::RequestUnreadable => "Nothing was executed: the request body broke off.",
            Self::HandlerPanicked => "It is not known whether the request took effect.",
            Self::StoreUnavailable { .. } | Self::StoreFull { .. } => {
                "Nothing was executed. Ask again with the same key."
            }
            Self::NotRecorded { .. } => "The outcome could not be recorded in time. Ask again with the same key.",
            Self::FencingTokenMissing => "This operation requires a fencing token, and the request carries none.",
            Self::FencingTokenInvalid(fault) => return format!("Nothing was executed: {fault}.").into(),
            Self::FencingTokenSuperseded { current } => {
                return format!(
                    "Nothing was written: the token {current} was admitted. Whoever holds an older one has lost its lease."
                )
                .into();
            }
            Self::LeaseHeld { .. } => "Nothing was executed: somebody else is at work on this. Ask again.",
            Self::StepUnknown { step, retry_after, .. } => {
                let next = match retry_after {
                    Some(_) => "Ask again with the same key.",
                    None => "It is not executed again. Look the operation up before using a new key.",
                };
                return format!("It is not known whether the step `{step}` of this operation took effect. {next}").into();
            }
            Self::StepNotCalled { .. } => {
                "The operation stopped before one of its steps, for which nothing was done now. Ask again with the same key."
            }
            Self::StepRequestChanged { step } => {
                return format!(
                    "The step `{step}` was called before with another request, because of an error in the service."
                )
                .into();
            }
            Self::StepResultNotKept { step, decided } => {
                return format!("The step `{step}` was {decided}, and its result is not kept. Look the operation up.").into();
            }
        }
        .into()
    }

    /// When to ask again, in whole seconds as `Retry-After` says it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InFlight { retry_after }
            | Self::StoreUnavailable { retry_after }
            | Self::StoreFull { retry_after }
            | Self::NotRecorded { retry_after }
            | Self::StepNotCalled { retry_after, .. }
            | Self::LeaseHeld { retry_after } => Some(whole_seconds(*retry_after)),
            Self::OutcomeUnknown { retry_after, .. } | Self::StepUnknown { retry_after, .. } => {
                retry_after.map(whole_seconds)
            }
            _ => None,
        }
    }

    /// Whether asking again with the same key can help: the response carries `Retry-After`.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.retry_after().is_some()
    }
}

impl Refusal {
    /// This refusal as a response, for a handler or a layer that refuses by itself: problem+json, with the reason in its extensions, and
    /// counted. Under an [`IdempotencyLayer`](crate::IdempotencyLayer) it frees the key: nothing was done. Not under
    /// [`Recovery::Hold`](idempotency::Recovery::Hold) where nobody knows that, or where a guarded step has begun: then the key is in doubt, and an answer
    /// that asked for a retry is replaced by one that does not.
    #[must_use]
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        metrics::counter!("idempotency_refused_total", "reason" => self.problem_type()).increment(1);
        let mut response = Problems::default().answer(self);
        response.extensions_mut().insert(Verdict::Release);
        response.map(B::from)
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.into_response()
    }
}

/// At least one second: a client must not come back at once.
fn whole_seconds(wait: Duration) -> Duration {
    Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(Duration::from_secs(1))
}

/// When to ask a store again that could not say: 1 to 3 s, so that many clients do not come back at once.
fn soon() -> Duration {
    Duration::from_secs(rand::random_range(1..=3))
}

/// How much of a lease a client waits for before it asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Every problem type of the idempotency layer, in the order of [`Refusal`]'s variants.
const PROBLEM_TYPES: [&str; 13] = [
    "idempotency-key-missing",
    "idempotency-key-invalid",
    "idempotency-scope-missing",
    "idempotency-key-reused",
    "request-in-flight",
    "outcome-unknown",
    "response-not-kept",
    "key-expired",
    "request-too-large",
    "request-unreadable",
    "handler-panicked",
    "store-unavailable",
    "store-full",
];
