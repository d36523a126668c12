//! Inbound: from the header to the handler.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::future::FencingFuture;
use super::header;
use crate::body::ResponseBody;
use crate::problem::Refusal;

/// Reads the fencing token of a caller that holds a lease elsewhere, and puts a [`FenceTicket`](idempotency::FenceTicket) and its
/// [`FencingToken`](idempotency::FencingToken) into the request's extensions, for the handler to open a fence with.
///
/// The header is `Fencing-Token: 1800000000000000;holder=:AAECAwQFBgcICQoLDA0ODw==:;src=1`: the token, from 1 to 2^53 - 1; `holder`,
/// the 16 bytes of the holder's nonce; `src`, the number of the [source](idempotency::TokenSource), 1 ([`Leases`](idempotency::Leases))
/// when it is missing. With a holder the same token may come again, in as many requests as the tenure has; **without one it is good
/// for one request**, since a second use cannot be told from a second user.
///
/// **Put it behind the authentication of services.** Whoever may send a token may shut everybody else out by a large one: a fence
/// refuses those of the far future, and admits the rest.
///
/// Answers 428 `fencing-token-missing` where it is [required](Self::new), and 400 `fencing-token-invalid`. It does not look at what the token
/// means; the fence does, and a handler tells the caller so by
/// [`Refusal::FencingTokenSuperseded`](crate::Refusal::FencingTokenSuperseded). Outside of an [`IdempotencyLayer`](crate::IdempotencyLayer)
/// it refuses before a key is looked at; the token is not in the fingerprint, so a retry may come under a newer one.
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use http::{Request, StatusCode};
/// use idempotency::FenceTicket;
/// use tower::ServiceExt as _;
/// use tower_idempotency::FencingLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A real handler opens the fence of what it writes: `fences.open_with(&resource, &ticket)`.
/// let write = async |Extension(ticket): Extension<FenceTicket>| ticket.token.to_string();
/// let app = Router::new().route("/write", post(write)).layer(FencingLayer::new());
///
/// let request = Request::post("/write").header("Fencing-Token", "34").body(axum::body::Body::empty())?;
/// assert_eq!(app.clone().oneshot(request).await?.status(), StatusCode::OK);
/// let request = Request::post("/write").body(axum::body::Body::empty())?;
/// assert_eq!(app.oneshot(request).await?.status(), StatusCode::PRECONDITION_REQUIRED);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a layer does nothing before it is put around a service"]
pub struct FencingLayer {
    required: bool,
}

impl FencingLayer {
    /// A request without a token is refused.
    pub const fn new() -> Self {
        Self { required: true }
    }

    /// A request without a token is passed on. Its handler must know what to do without one: a write that no fence admitted
    /// can come from anybody who was ever stopped.
    pub const fn optional() -> Self {
        Self { required: false }
    }
}

impl Default for FencingLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for FencingLayer {
    type Service = Fencing<S>;

    fn layer(&self, inner: S) -> Fencing<S> {
        Fencing { inner, required: self.required }
    }
}

/// A service with a [`FencingLayer`] around it.
#[derive(Clone, Copy, Debug)]
pub struct Fencing<S> {
    inner: S,
    required: bool,
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Fencing<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = FencingFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let refusal = match header::parse(request.headers()) {
            Ok(Some(ticket)) => {
                request.extensions_mut().insert(ticket.token);
                request.extensions_mut().insert(ticket);
                return FencingFuture::pass(self.inner.call(request));
            }
            Ok(None) if !self.required => return FencingFuture::pass(self.inner.call(request)),
            Ok(None) => Refusal::FencingTokenMissing,
            Err(fault) => Refusal::FencingTokenInvalid(fault),
        };
        FencingFuture::refuse(refusal.into_response())
    }
}
