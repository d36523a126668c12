//! The [guard](idempotency::outbound) for calls to external APIs that are not idempotent, as a layer around an HTTP client.
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//!
//! use axum::{Router, routing::post};
//! use bytes::Bytes;
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use idempotency::outbound::{Guard, KeySupport, Policy, Provider};
//! use idempotency_memory::MemoryStore;
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//! use tower_idempotency::outbound::{GuardedStep, OutboundLayer};
//! use tower_idempotency::{CurrentAttempt, IdempotencyLayer, Refusal, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let provider = Provider::new("provider", Duration::from_secs(5))?.takes_key(KeySupport::stripe()?)?.refuses([402]);
//! let guard = Guard::new(store.clone(), provider, Policy::Hold)?;
//!
//! // In place of a client of hyper-util.
//! let client = service_fn(async |request: Request<Full<Bytes>>| {
//!     assert_eq!(request.headers()["idempotency-key"].len(), 64);
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("ch_1"))))
//! });
//! let client = ServiceBuilder::new().layer(OutboundLayer::new(guard)).service(client);
//!
//! let pay = async move |CurrentAttempt(attempt): CurrentAttempt| {
//!     let charge = GuardedStep::new(&attempt, "charge").expect("a label");
//!     let request = Request::post("https://provider.example/charges").extension(charge);
//!     let request = request.body(Full::new(Bytes::from("amount=10"))).expect("a request");
//!     let response = client.oneshot(request).await?;
//!     Ok::<_, Refusal>(if response.status().is_success() { StatusCode::CREATED } else { StatusCode::PAYMENT_REQUIRED })
//! };
//! let app = Router::new().route("/pay", post(pay)).layer(IdempotencyLayer::new(store, Scope::global()));
//!
//! let request = Request::post("/pay").header("Idempotency-Key", "8e03978e").body(axum::body::Body::empty())?;
//! assert_eq!(app.oneshot(request).await?.status(), StatusCode::CREATED);
//! # Ok(())
//! # }
//! ```
//!
//! The rules, besides those of the [guard](idempotency::outbound):
//!
//! 1. **A request names its step** by a [`GuardedStep`] in its extensions. One that names none is refused, unless [said otherwise](Unguarded).
//! 2. **The body is read first**, up to [a limit](OutboundLayer::max_request). A body that breaks off: nothing was sent. Every call sends the same bytes,
//!    and a step whose method, URI, [headers that count](OutboundLayer::same_headers) or body have changed is refused: there is no second
//!    call with another request. So serialise from what has an order, not from a hash map.
//! 3. **The step's key** goes where the provider [wants it](idempotency::outbound::KeyPlace), in place of one that is there already, and only while the
//!    provider's window is open.
//! 4. **No error of the client means "not done"**, but for those that are [said](OutboundLayer::not_sent) to be certain. A timeout inside,
//!    a reset, and an answer that breaks off are unknown outcomes.
//! 5. **The answer is read to its end** within the call timeout, and is recorded: status, headers and body. A later run gets the same
//!    response, marked [`StepReplayed`]. Headers that belong to one exchange ([the list](crate#what-is-not-replayed)) are left out from
//!    the first response too. A response above [`LONGEST_RESULT`](idempotency::outbound::LONGEST_RESULT) is recorded as done without it.
//! 6. **Decided is `Ok`**, done or refused: look at the status. All else is an [`OutboundError`], of which `?` makes a
//!    [`Refusal`](crate::Refusal) in a handler.
//!
//! # Where it stands in a client
//!
//! From outside in: **outbound**, [`ForwardFencingToken`](crate::ForwardFencingToken), authentication, timeout, client. What signs a request stands
//! inside, so that it signs the key as well.
//!
//! **No retry layer inside.** It sends a second time what may have been done, where the guard cannot see it: with a provider that honours the
//! key that is harmless, with any other it is the double effect that the guard is there to prevent. [`Policy::Retry`](idempotency::outbound::Policy::Retry) is
//! the retry, and a retry layer *outside* of this one is harmless: it meets the step as it is. No redirects inside either, which
//! send the body again to elsewhere: to this layer an answer of 307 or 308 is an unknown outcome, unless the provider
//! [documents](idempotency::outbound::Provider::refuses) it.
//!
//! # What clients send again by themselves
//!
//! - **hyper-util** (`retry_canceled_requests`, on by default) sends a request again on a new connection when the pooled one was closed *before
//!   any of it was written*: it gets the request back unstarted from hyper, and does not do so once it was started. That is harmless. Switched off,
//!   the same race is an error that cannot be told from others, and so an unknown outcome of a call that was never made: leave
//!   it on. `Error::is_connect` covers what the connector does (names, TCP, TLS) and nothing that comes after.
//! - **reqwest** pools in the same way, and cannot be told not to; `pool_max_idle_per_host(0)` keeps no connection, and so leaves nothing to send
//!   again on. Besides, it follows redirects and, over HTTP/2, sends again what the server says it has refused: switch both off
//!   (`redirect(redirect::Policy::none())`, `retry(retry::never())`). It takes requests of its own type, so use it through
//!   [`Guard::call`](idempotency::outbound::Guard::call): `Error::is_connect` is what was certainly not sent, and
//!   [`Provider::ending`](idempotency::outbound::Provider::ending) says what an answer means.
//! - **Systems below** (a proxy, a service mesh, a load balancer) may send again whatever they like. Switch it off for such routes.
//!
//! # Other services of one's own
//!
//! A service behind an [`IdempotencyLayer`](crate::IdempotencyLayer) is a provider that takes a key: `KeySupport::idempotency_layer` with its
//! tombstone window. One behind a [`FencingLayer`](crate::FencingLayer) takes the [ticket](GuardedStep::ticket) of the attempt as well.

mod error;
mod exchange;
mod future;
mod layer;
mod service;
mod step;

use bytes::Bytes;
use http::Response;

pub use error::OutboundError;
pub use future::OutboundFuture;
pub use layer::{OutboundLayer, Unguarded};
pub use service::{Outbound, StepReplayed};
pub use step::GuardedStep;

use crate::stored::{self, SetCookie, StoredResponse};

/// A provider's response as this layer records it: the result that a [reconcile](idempotency::outbound::Policy::reconcile) hook
/// [found](idempotency::outbound::Found::Happened), or somebody [resolves](idempotency::outbound::Steps::resolve_step) a step by. The handler that runs
/// again gets this response.
#[must_use]
pub fn result_of(response: &Response<Bytes>) -> Bytes {
    let kept = stored::keep(response.headers(), SetCookie::NeverStored);
    StoredResponse::encode(response.status(), &kept, response.body())
}
