//! Outbound: from whoever holds a lease to the header.

use std::task::{Context, Poll};

use http::{HeaderValue, Request};
use idempotency::{FenceTicket, LeaseView};
use tower_layer::Layer;
use tower_service::Service;

use super::header::{self, FENCING_TOKEN};

/// For clients: writes the `Fencing-Token` header from what is in a request's extensions, a [`LeaseView`] or a [`FenceTicket`].
///
/// A lease is asked for its token when the request is sent, and one that is lost gives none: the request then goes out without the
/// header, and a service behind a [`FencingLayer`](super::FencingLayer) refuses it. So put it inside of retries, which must not send
/// the token of a lease that was lost between two tries. A header that was set by hand is replaced where there is something to write.
///
/// ```
/// use std::convert::Infallible;
///
/// use http::{Request, Response};
/// use idempotency::{LeaseSettings, Leaser, Resource};
/// use idempotency_memory::MemoryLeases;
/// use tower::{ServiceBuilder, ServiceExt as _, service_fn};
/// use tower_idempotency::ForwardFencingToken;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In place of a client of hyper or reqwest.
/// let client = service_fn(async |request: Request<()>| {
///     assert!(request.headers().contains_key("fencing-token"));
///     Ok::<_, Infallible>(Response::new(()))
/// });
/// let client = ServiceBuilder::new().layer(ForwardFencingToken::new()).service(client);
///
/// let leaser = Leaser::new(MemoryLeases::new(), LeaseSettings::default());
/// let lease = leaser.try_acquire(&Resource::parse("account/7")?).await?.yours().ok_or("somebody has it")?;
/// let mut request = Request::post("https://ledger.example/accounts/7").body(())?;
/// request.extensions_mut().insert(lease.view());
/// client.oneshot(request).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a layer does nothing before it is put around a service"]
pub struct ForwardFencingToken(());

impl ForwardFencingToken {
    /// The layer.
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for ForwardFencingToken {
    type Service = ForwardFencingTokenService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ForwardFencingTokenService { inner }
    }
}

/// A client with [`ForwardFencingToken`] around it.
#[derive(Clone, Copy, Debug)]
pub struct ForwardFencingTokenService<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for ForwardFencingTokenService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(said) = said(&request) {
            match said {
                Some(value) => drop(request.headers_mut().insert(FENCING_TOKEN, value)),
                None => drop(request.headers_mut().remove(FENCING_TOKEN)),
            }
        }
        self.inner.call(request)
    }
}

/// The header's value, none when the lease is lost; nothing when the request says nothing of a lease.
fn said<B>(request: &Request<B>) -> Option<Option<HeaderValue>> {
    let extensions = request.extensions();
    let lease = extensions.get::<LeaseView>().map(|lease| lease.ticket().ok());
    let ticket = lease.or_else(|| extensions.get::<FenceTicket>().map(|ticket| Some(*ticket)))?;
    Some(ticket.and_then(|ticket| header::value(&ticket)))
}
