//! The future of a response under a lease.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;

type Answer<B, E> = Result<Response<ResponseBody<B>>, E>;

pin_project! {
    /// The response of a [`Leasing`](super::Leasing) service.
    ///
    /// # Cancel safety
    /// Dropped while the lease is asked for or waited for: nothing ran, and nothing is held. Dropped later: the handler is dropped, and the
    /// lease is given back in the background.
    pub struct LeasingFuture<F, B, E> {
        #[pin]
        kind: Kind<F, B, E>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, B, E> {
        Pass { #[pin] inner: F },
        Leased { work: Pin<Box<dyn Future<Output = Answer<B, E>> + Send>> },
    }
}

impl<F, B, E> LeasingFuture<F, B, E> {
    pub(super) fn pass(inner: F) -> Self {
        Self { kind: Kind::Pass { inner } }
    }

    /// It waits on a store, so a box is not what it costs.
    pub(super) fn leased(work: impl Future<Output = Answer<B, E>> + Send + 'static) -> Self {
        Self { kind: Kind::Leased { work: Box::pin(work) } }
    }
}

impl<F, B, E> Future for LeasingFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProj::Pass { inner } => {
                let response = ready!(inner.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::untouched)))
            }
            KindProj::Leased { work } => work.as_mut().poll(cx),
        }
    }
}

impl<F, B, E> fmt::Debug for LeasingFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeasingFuture")
    }
}
