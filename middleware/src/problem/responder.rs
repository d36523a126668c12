//! Another body for what the layer refuses.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

use super::Refusal;

/// Makes the response to a [`Refusal`] from the one that the layer has ready. Default: that one.
///
/// A responder may change body and headers as it likes. Leave `Retry-After` as it is: it tells clients
/// whether the same key may be tried again.
///
/// ```
/// use http::header::{CONTENT_TYPE, HeaderValue};
/// use tower_idempotency::Responder;
///
/// let plain = Responder::from_fn(|refusal, mut response| {
///     response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
///     response.map(|_| refusal.title().into())
/// });
/// ```
#[derive(Clone)]
pub struct Responder(Arc<Respond>);

type Respond = dyn Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync;

impl Responder {
    /// A responder of one's own.
    pub fn from_fn(respond: impl Fn(&Refusal, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        Self(Arc::new(respond))
    }

    /// For clients of the Stripe SDK family: `{"error": {"type", "code", "message"}}` and the header
    /// `Stripe-Should-Retry`, which those SDKs obey before they look at the status.
    #[must_use]
    pub fn stripe() -> Self {
        Self::from_fn(stripe)
    }

    pub(super) fn respond(&self, refusal: &Refusal, response: Response<Bytes>) -> Response<Bytes> {
        (self.0)(refusal, response)
    }
}

impl Default for Responder {
    fn default() -> Self {
        Self::from_fn(|_, response| response)
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}

fn stripe(refusal: &Refusal, response: Response<Bytes>) -> Response<Bytes> {
    #[derive(Serialize)]
    struct Body {
        error: Error,
    }

    #[derive(Serialize)]
    struct Error {
        r#type: &'static str,
        code: String,
        message: String,
    }

    let code = match refusal {
        Refusal::InFlight { .. } => "idempotency_key_in_use".to_owned(),
        other => other.problem_type().replace('-', "_"),
    };
    let error = Error { r#type: stripe_type(refusal), code, message: refusal.detail().into_owned() };
    // Strings under fixed names: there is nothing that could fail to serialise.
    let body = serde_json::to_vec(&Body { error }).unwrap_or_default();
    let mut response = response.map(|_| body.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let retry = if refusal.retryable() { "true" } else { "false" };
    headers.insert(STRIPE_SHOULD_RETRY, HeaderValue::from_static(retry));
    response
}

fn stripe_type(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::KeyReused
        | Refusal::InFlight { .. }
        | Refusal::OutcomeUnknown { .. }
        | Refusal::StepUnknown { .. }
        | Refusal::ResponseNotKept { .. }
        | Refusal::KeyExpired { .. } => "idempotency_error",
        other if other.status() >= StatusCode::INTERNAL_SERVER_ERROR => "api_error",
        _ => "invalid_request_error",
    }
}

const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
