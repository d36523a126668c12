//! The future of a response, which outlives its client once a claim was asked for.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use crate::body::ResponseBody;

type Answer<B, E> = Result<Response<ResponseBody<B>>, E>;

pin_project! {
    /// The response of an [`Idempotency`](crate::Idempotency) service.
    ///
    /// # Cancel safety
    /// Dropped before the handler was begun (the request was not read to its end, the store had not answered, another attempt was
    /// waited for): nothing ran, and the claim is abandoned. Dropped later (a client that hung up, an outer timeout): the work goes
    /// on in a tracked task until it is recorded.
    pub struct ResponseFuture<F, B, E> {
        #[pin]
        kind: Kind<F, B, E>,
    }
}

pin_project! {
    #[project = KindProj]
    enum Kind<F, B, E> {
        Pass { #[pin] inner: F },
        Refused { response: Option<Response<Bytes>> },
        Keyed { work: Detaching<Answer<B, E>> },
    }
}

impl<F, B, E> ResponseFuture<F, B, E> {
    pub(crate) fn pass(inner: F) -> Self {
        Self { kind: Kind::Pass { inner } }
    }

    pub(crate) fn refuse(response: Response<Bytes>) -> Self {
        Self { kind: Kind::Refused { response: Some(response) } }
    }

    /// `work` is given the flag to set once it must not be dropped any more.
    pub(crate) fn keyed<W>(work: impl FnOnce(Started) -> W, tracker: &TaskTracker) -> Self
    where
        W: Future<Output = Answer<B, E>> + Send + 'static,
        B: Send + 'static,
        E: Send + 'static,
    {
        let started = Started::default();
        let work = Box::pin(work(started.clone()));
        Self { kind: Kind::Keyed { work: Detaching::new(work, started, tracker.clone()) } }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
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
            KindProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ResponseBody::whole))),
                None => Poll::Pending, // polled after it was ready
            },
            KindProj::Keyed { work } => work.poll(cx),
        }
    }
}

impl<F, B, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

/// Set once the work must not be dropped any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Started(Arc<AtomicBool>);

impl Started {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Runs in place, without a spawn, and is handed to a tracked task when it is dropped after it started. The task drops it for good: at the
/// shutdown of its runtime it is not handed over again.
struct Detaching<T> {
    work: Option<Work<T>>,
    started: Started,
    tracker: TaskTracker,
    runtime: Handle,
    span: Span,
    /// Known where it is made, so that the type needs no bounds.
    finish: fn(Work<T>, Span, &TaskTracker, &Handle),
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Send + 'static> Detaching<T> {
    fn new(work: Work<T>, started: Started, tracker: TaskTracker) -> Self {
        let finish = |work: Work<T>, span, tracker: &TaskTracker, runtime: &Handle| {
            tracker.spawn_on(async { drop(work.await) }.instrument(span), runtime);
        };
        Self { work: Some(work), started, tracker, runtime: Handle::current(), span: Span::current(), finish }
    }
}

impl<T> Detaching<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: work that panicked is not handed to a task that would poll it again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T> Drop for Detaching<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take_if(|_| self.started.is_set()) else { return };
        tracing::debug!(parent: &self.span, "the client left; the work goes on");
        metrics::counter!("idempotency_detached_total").increment(1);
        (self.finish)(work, self.span.clone(), &self.tracker, &self.runtime);
    }
}
