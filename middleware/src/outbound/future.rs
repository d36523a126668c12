//! The future of a guarded client.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Method, Response};
use pin_project_lite::pin_project;

use super::error::OutboundError;
use crate::body::{BoxError, ResponseBody};

type Answer<B> = Result<Response<ResponseBody<B>>, OutboundError>;

pin_project! {
    /// The response of an [`Outbound`](super::Outbound) client.
    ///
    /// # Cancel safety
    /// As of [`Guard::call`](idempotency::outbound::Guard::call): dropped before the call was begun, nothing was sent; dropped while it is made, its
    /// outcome is unknown once its deadline and quiet period are over.
    pub struct OutboundFuture<F, B> {
        #[pin]
        kind: Kind<F, B>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, B> {
        Pass { #[pin] inner: F, method: Method },
        Refused { error: Option<OutboundError> },
        Guarded { work: Pin<Box<dyn Future<Output = Answer<B>> + Send>> },
    }
}

impl<F, B> OutboundFuture<F, B> {
    pub(super) fn pass(inner: F, method: Method) -> Self {
        Self { kind: Kind::Pass { inner, method } }
    }

    pub(super) fn refuse(error: OutboundError) -> Self {
        Self { kind: Kind::Refused { error: Some(error) } }
    }

    /// It waits on a store and on a provider, so a box is not what it costs.
    pub(super) fn guarded(work: impl Future<Output = Answer<B>> + Send + 'static) -> Self {
        Self { kind: Kind::Guarded { work: Box::pin(work) } }
    }
}

impl<F, B, E> Future for OutboundFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
    E: Into<BoxError>,
{
    type Output = Answer<B>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProj::Pass { inner, method } => {
                let failed = |error: E| OutboundError::Unguarded { method: method.clone(), source: error.into() };
                let response = ready!(inner.poll(cx)).map_err(failed)?;
                Poll::Ready(Ok(response.map(ResponseBody::untouched)))
            }
            KindProj::Refused { error } => error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
            KindProj::Guarded { work } => work.as_mut().poll(cx),
        }
    }
}

impl<F, B> fmt::Debug for OutboundFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutboundFuture")
    }
}
