//! The layer and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use idempotency::{Leaser, Leases, Resource};
use tower_layer::Layer;

use super::service::Leasing;

/// Takes a lease on a resource that is told from the request, for the time of the handler, and puts its
/// [`LeaseView`](idempotency::LeaseView) into the request's extensions.
///
/// 1. A request whose resource is `None` is **passed on without a lease**, at no cost.
/// 2. Where somebody else has the lease, it is [waited for](Self::wait), and then answered with 409 `lease-held` and `Retry-After`.
///    Where the store cannot say, with 503 `store-unavailable`. Nothing ran in either case, and under an
///    [`IdempotencyLayer`](crate::IdempotencyLayer) outside the key is free again.
/// 3. The lease is given back when the handler has answered, before its response is passed on, so that the next request of
///    the same client finds it free; and in the background when the request is dropped or its handler panics. A body that is
///    streamed afterwards is not under the lease.
///
/// **A lease keeps handlers apart; it does not keep their writes apart.** A handler that stood still for longer than its lease goes
/// on when it wakes, beside the next one. So what it writes carries the [token](idempotency::LeaseView::ticket) to a fence, and
/// it asks the view for it right before: a lease that is lost gives none. And when the write is a row in one database, a conditional
/// `UPDATE` or `SELECT … FOR UPDATE` is simpler and stronger than this layer.
///
/// Inside of an [`IdempotencyLayer`](crate::IdempotencyLayer) duplicates are answered without a lease, and work whose client has left
/// keeps it to its end. Of two of these layers around one handler it sees the inner one's view.
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use http::{Request, StatusCode};
/// use idempotency::{LeaseSettings, LeaseView, Leaser, Resource};
/// use idempotency_memory::MemoryLeases;
/// use tower::ServiceExt as _;
/// use tower_idempotency::LeaseLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let leaser = Leaser::new(MemoryLeases::new(), LeaseSettings::default());
/// let layer = LeaseLayer::new(leaser.clone(), |parts| Resource::parse(parts.uri.path()).ok());
/// // A real handler opens the fence of what it writes with the ticket.
/// let book = async |Extension(lease): Extension<LeaseView>| lease.ticket().map(|ticket| ticket.token.to_string()).unwrap_or_default();
/// let app = Router::new().route("/accounts/7", post(book)).layer(layer);
///
/// let request = || Request::post("/accounts/7").body(axum::body::Body::empty());
/// assert_eq!(app.clone().oneshot(request()?).await?.status(), StatusCode::OK);
///
/// let elsewhere = leaser.try_acquire(&Resource::parse("/accounts/7")?).await?;
/// assert_eq!(app.oneshot(request()?).await?.status(), StatusCode::CONFLICT);
/// # drop(elsewhere);
/// # Ok(())
/// # }
/// ```
#[must_use = "a layer does nothing before it is put around a service"]
pub struct LeaseLayer<L> {
    leaser: Leaser<L>,
    resource: Arc<ResourceFunction>,
    wait: Duration,
}

pub(super) type ResourceFunction = dyn Fn(&Parts) -> Option<Resource> + Send + Sync;

impl<L: Leases> LeaseLayer<L> {
    /// Takes leases of `leaser` on what `resource` tells from a request's head.
    pub fn new(leaser: Leaser<L>, resource: impl Fn(&Parts) -> Option<Resource> + Send + Sync + 'static) -> Self {
        Self { leaser, resource: Arc::new(resource), wait: Duration::ZERO }
    }

    /// How long a request waits for the lease. Default zero: it is refused at once. Whoever waits holds a connection and its memory,
    /// and nothing of the store; a wait longer than an outer timeout ends there, with nothing taken.
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }
}

impl<S, L: Leases> Layer<S> for LeaseLayer<L> {
    type Service = Leasing<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        Leasing { inner, leaser: self.leaser.clone(), resource: Arc::clone(&self.resource), wait: self.wait }
    }
}

impl<L> Clone for LeaseLayer<L> {
    fn clone(&self) -> Self {
        Self { leaser: self.leaser.clone(), resource: Arc::clone(&self.resource), wait: self.wait }
    }
}

impl<L> fmt::Debug for LeaseLayer<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseLayer").field("leaser", &self.leaser).field("wait", &self.wait).finish_non_exhaustive()
    }
}
