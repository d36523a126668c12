//! Extractors for axum handlers.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use idempotency::Attempt;

/// The attempt that a handler runs under: key, number, fencing token, time left, loss. Use `Option<CurrentAttempt>` on routes
/// where the key is optional.
///
/// ```
/// use tower_idempotency::CurrentAttempt;
///
/// async fn charge(CurrentAttempt(attempt): CurrentAttempt) -> String {
///     format!("attempt {} with token {}", attempt.number(), attempt.token())
/// }
/// # let _ = charge;
/// ```
#[derive(Clone, Debug)]
pub struct CurrentAttempt(pub Attempt);

impl<S: Sync> FromRequestParts<S> for CurrentAttempt {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        let attempt = parts.extensions.get::<Attempt>().cloned();
        attempt.map(Self).ok_or((StatusCode::INTERNAL_SERVER_ERROR, "the request runs without an idempotency attempt"))
    }
}

impl<S: Sync> axum::extract::OptionalFromRequestParts<S> for CurrentAttempt {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<Attempt>().cloned().map(Self))
    }
}
