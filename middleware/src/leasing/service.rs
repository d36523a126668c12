//! The service that the layer makes.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use idempotency::{HeldLease, Leaser, Leases, Released, Resource, Taken};
use tower_service::Service;

use super::future::LeasingFuture;
use super::layer::ResourceFunction;
use crate::body::ResponseBody;
use crate::problem::Refusal;

/// A service with a [`LeaseLayer`](super::LeaseLayer) around it.
pub struct Leasing<S, L> {
    pub(super) inner: S,
    pub(super) leaser: Leaser<L>,
    pub(super) resource: Arc<ResourceFunction>,
    pub(super) wait: Duration,
}

impl<S, L, ReqBody, ResBody> Service<Request<ReqBody>> for Leasing<S, L>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    L: Leases,
    ReqBody: Send + 'static,
    ResBody: Send + 'static,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = LeasingFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let resource = (self.resource)(&parts);
        let mut request = Request::from_parts(parts, body);
        let Some(resource) = resource else { return LeasingFuture::pass(self.inner.call(request)) };
        // The clone may not be ready; the service that was polled ready must be the one that is called.
        let clone = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, clone);
        let (leaser, wait) = (self.leaser.clone(), self.wait);
        LeasingFuture::leased(async move {
            let lease = match take(&leaser, &resource, wait).await {
                Ok(lease) => lease,
                Err(response) => return Ok(response.map(ResponseBody::whole)),
            };
            request.extensions_mut().insert(lease.view());
            // Dropped here, or unwound, the guard gives the lease back.
            let answer = ready.call(request).await;
            give_back(lease).await;
            Ok(answer?.map(ResponseBody::untouched))
        })
    }
}

/// The lease, or what is answered without one.
async fn take<L: Leases>(
    leaser: &Leaser<L>,
    resource: &Resource,
    wait: Duration,
) -> Result<HeldLease<L>, Response<Bytes>> {
    let refusal = match leaser.acquire(resource, wait).await {
        Ok(Taken::Yours(lease)) => return Ok(lease),
        Ok(Taken::Held { lease_left }) => Refusal::lease_held(lease_left),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "the store could not say who has the lease");
            Refusal::store_unavailable()
        }
    };
    tracing::debug!(reason = refusal.problem_type(), %resource, "refused");
    Err(refusal.into_response())
}

/// The answer is sent whatever comes of it: what is not given back now is in the background, or ends by itself.
async fn give_back<L: Leases>(lease: HeldLease<L>) {
    let resource = lease.resource().clone();
    match lease.release().await {
        Ok(Released::Released) => {}
        Ok(Released::NotHeld) => tracing::warn!(%resource, "the lease was lost while its handler ran"),
        Err(error) => tracing::debug!(%resource, %error, "the lease is given back in the background"),
    }
}

impl<S: Clone, L> Clone for Leasing<S, L> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            leaser: self.leaser.clone(),
            resource: Arc::clone(&self.resource),
            wait: self.wait,
        }
    }
}

impl<S: fmt::Debug, L> fmt::Debug for Leasing<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasing").field("inner", &self.inner).field("wait", &self.wait).finish_non_exhaustive()
    }
}
