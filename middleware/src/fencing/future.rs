//! The future of a response behind a [`FencingLayer`](super::FencingLayer).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use crate::body::ResponseBody;

pin_project! {
    /// The response of a [`Fencing`](super::Fencing) service.
    pub struct FencingFuture<F> {
        #[pin]
        kind: Kind<F>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F> {
        Pass { #[pin] inner: F },
        Refused { response: Option<Response<Bytes>> },
    }
}

impl<F> FencingFuture<F> {
    pub(super) fn pass(inner: F) -> Self {
        Self { kind: Kind::Pass { inner } }
    }

    pub(super) fn refuse(response: Response<Bytes>) -> Self {
        Self { kind: Kind::Refused { response: Some(response) } }
    }
}

impl<F, B, E> Future for FencingFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProj::Pass { inner } => {
                let response = ready!(inner.poll(cx))?;
                Poll::Ready(Ok(response.map(ResponseBody::untouched)))
            }
            KindProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ResponseBody::whole))),
                None => Poll::Pending, // polled after it was ready
            },
        }
    }
}

impl<F> fmt::Debug for FencingFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FencingFuture")
    }
}
