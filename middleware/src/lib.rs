//! A tower layer that runs a request with an `Idempotency-Key` once and replays its recorded response.
//!
//! ```
//! use axum::{Json, Router, routing::post};
//! use http::{Request, StatusCode};
//! use idempotency_memory::MemoryStore;
//! use serde_json::{Value, json};
//! use tower::ServiceExt as _;
//! use tower_idempotency::{IdempotencyLayer, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = IdempotencyLayer::new(MemoryStore::new(), Scope::global());
//! let charge = async |Json(order): Json<Value>| (StatusCode::CREATED, Json(json!({ "charged": order["amount"] })));
//! let app = Router::new().route("/charge", post(charge)).layer(layer);
//!
//! let request = |amount: u32| {
//!     Request::post("/charge")
//!         .header("Idempotency-Key", "8e03978e")
//!         .header("Content-Type", "application/json")
//!         .body(axum::body::Body::from(json!({ "amount": amount }).to_string()))
//! };
//! let first = app.clone().oneshot(request(10)?).await?;
//! assert_eq!(first.status(), StatusCode::CREATED);
//!
//! let again = app.clone().oneshot(request(10)?).await?;
//! assert_eq!(again.status(), StatusCode::CREATED);
//! assert_eq!(again.headers()["idempotent-replayed"], "true");
//!
//! let other = app.oneshot(request(99)?).await?;
//! assert_eq!(other.status(), StatusCode::UNPROCESSABLE_ENTITY);
//! # Ok(())
//! # }
//! ```
//!
//! # The rules
//!
//! 1. A request of a protected method (POST and PATCH by default) with a key is claimed in the store before the handler runs. One
//!    claimer runs; the others get 409 with `Retry-After`, or wait, or get the recorded response.
//! 2. The same key with another request is 422; nothing of the first leaks.
//! 3. The handler's answer decides what is recorded ([`RecordPolicy`]): what was decided is recorded, what was refused before
//!    anything happened frees the key, and after a 5xx nobody knows, so nothing runs again by default.
//! 4. A client that hangs up does not stop the work.
//! 5. If the store cannot say, nothing runs: 503.
//! 6. A 409 or 503 of the layer is worth a retry if and only if it carries `Retry-After`.
//!
//! # Where it stands among other layers
//!
//! From outside in: trace, catch-panic, CORS, compression, timeout, limits, authentication, request decompression, body limit,
//! **idempotency**, handler. A timeout inside would cut the work and look like an answer; compression inside would replay the wrong
//! encoding; authentication inside would replay to a caller whose rights were revoked. CORS must allow `Idempotency-Key` and
//! expose `Idempotent-Replayed` and `Retry-After`.
//!
//! # What is not replayed
//!
//! Status, headers and body are replayed as they were, but for what belongs to one connection, one exchange or one client and is never
//! stored: hop-by-hop fields and those named by `Connection`, `Content-Length` and `Transfer-Encoding` (recomputed), `Date`, `Age`,
//! `Set-Cookie` (unless [said](SetCookie)), `Clear-Site-Data`, `WWW-Authenticate`, `Proxy-*`, `Authentication-Info`,
//! `Access-Control-*`, `RateLimit*`, `X-RateLimit-*`, `Retry-After`, `Server-Timing`, `Alt-Svc`, `traceparent`, `tracestate`,
//! `X-Request-Id`, `DPoP-Nonce`. A response that is streamed, longer than the limit, or has trailers is not replayed: its duplicate is
//! told that it was executed. Trailers of a keyed request are not handed to the handler.
//!
//! # What passes by
//!
//! Methods that are not protected; and, where a key is optional, HTTP/1.1 upgrades to another protocol and gRPC calls. Where a key is
//! [required](KeyRequired::Required), nothing a client can say leads past it.
//!
//! # What it counts
//!
//! Through [`metrics`](https://docs.rs/metrics), when a recorder is installed: `idempotency_refused_total` (by `reason`),
//! `idempotency_replayed_total`, `idempotency_duplicate_age_seconds` (by `answer`:
//! `replay`, `tombstone`, `in-doubt`, and `expired` by the age of the key), `idempotency_superseded_total`,
//! `idempotency_recorded_late_total`, `idempotency_not_recorded_total`, `idempotency_detached_total`, `idempotency_unprotected_total`,
//! `idempotency_claims_abandoned_total`, `idempotency_waits_refused_total`, `idempotency_leases_lost_total`, `idempotency_renewals_failed_total`,
//! `idempotency_max_run_reached_total`, `idempotency_purged_total`, `idempotency_possible_escapes_total` (by
//! `reason`: `in-doubt`, a doubt that was forgotten; `old-key`, a first run of a key that says it is older than the tombstone window, where no
//! [format](IdempotencyLayer::key_format) refuses it: a client with opaque keys can raise it at will), `idempotency_trace_dropped_total`.
//! Leases: `idempotency_leases_granted_total`, `idempotency_leases_waited_total`, `idempotency_leases_abandoned_total`,
//! `idempotency_held_leases_lost_total`, `idempotency_lease_renewals_failed_total`, `idempotency_max_hold_reached_total`,
//! `idempotency_leases_purged_total`.
//! Calls: `idempotency_outbound_unknown_total`, `idempotency_outbound_alarms_total`, `idempotency_outbound_recorded_late_total`.
//!
//! # What it cannot do
//!
//! A handler that was killed half-way leaves its key *in doubt*: the layer cannot know whether the effect happened. When the effect is a
//! row in one database, no layer is needed for it to happen once: a UNIQUE row or a conditional UPDATE is simpler and stronger.
//! Task-locals of outer layers are not seen by a handler whose client has left. A duplicate that waits for the first one holds its place in
//! an inner `ConcurrencyLimit`; put such a limit outside.

mod answer;
pub mod body;
mod describe;
#[cfg(feature = "axum")]
mod extract;
mod fencing;
mod fingerprint;
mod future;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header_key;
mod key_time;
mod keyed;
mod layer;
mod leasing;
mod media_type;
pub mod outbound;
mod pieces;
mod problem;
mod record_policy;
mod recording;
mod scope;
mod service;
mod stored;
mod whole;

pub use answer::Replayed;
pub use describe::Description;
#[cfg(feature = "axum")]
pub use extract::CurrentAttempt;
pub use fencing::{
    FENCING_TOKEN, Fencing, FencingFuture, FencingLayer, ForwardFencingToken, ForwardFencingTokenService,
    InvalidFencingToken,
};
pub use fingerprint::{BodyMode, FingerprintRule};
pub use future::ResponseFuture;
pub use header_key::InvalidKeyHeader;
pub use idempotency;
pub use idempotency::Attempt;
pub use key_time::{KeyFormat, WrongKeyFormat};
pub use layer::{IdempotencyLayer, KeyRequired, Outage};
pub use leasing::{LeaseLayer, Leasing, LeasingFuture};
pub use problem::{KeyFault, NotCalled, Refusal, Responder};
pub use record_policy::{OwnPolicy, RecordPolicy, Verdict};
pub use recording::{StreamThrough, recorded};
pub use scope::Scope;
pub use service::Idempotency;
pub use stored::SetCookie;
pub use whole::WholeResponse;

/// The examples of the README are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
