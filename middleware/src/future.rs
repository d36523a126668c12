//! The future of a response, which outlives its client once a claim was asked for.

use std::fmt;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TaskTrackerToken;
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

    /// `ask` may be dropped. What it grants is given to `run`, and that must not be dropped any more.
    pub(crate) fn keyed<A, G, R, W>(ask: A, run: R) -> Self
    where
        A: Future<Output = ControlFlow<Answer<B, E>, G>> + Send + 'static,
        R: FnOnce(G) -> (W, TaskTrackerToken) + Send + 'static,
        W: Future<Output = Answer<B, E>> + Send + 'static,
        B: Send + 'static,
        E: Send + 'static,
    {
        let work = Box::pin(Keyed { stage: Stage::Asking { ask }, run: Some(run) });
        Self { kind: Kind::Keyed { work: Detaching(Some(work)) } }
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

/// Work that may be dropped until it has started.
trait Startable: Future {
    fn has_started(&self) -> bool;

    /// Hands it to a tracked task, which drops it for good: at the shutdown of its runtime it is not handed over again.
    fn carry_on(self: Pin<Box<Self>>);
}

pin_project! {
    /// One after the other in one place: they are in one allocation, and it is no larger than the larger of the two.
    struct Keyed<A, R, W> {
        #[pin]
        stage: Stage<A, W>,
        run: Option<R>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<A, W> {
        Asking { #[pin] ask: A },
        Running { #[pin] work: W, aside: Aside },
    }
}

impl<A, R, W, G> Future for Keyed<A, R, W>
where
    A: Future<Output = ControlFlow<W::Output, G>>,
    R: FnOnce(G) -> (W, TaskTrackerToken),
    W: Future,
{
    type Output = W::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<W::Output> {
        let mut this = self.project();
        if let StageProj::Asking { ask } = this.stage.as_mut().project() {
            match (ready!(ask.poll(cx)), this.run.take()) {
                (ControlFlow::Break(answer), _) => return Poll::Ready(answer),
                (ControlFlow::Continue(granted), Some(run)) => {
                    let (runtime, span) = (Handle::current(), Span::current());
                    let (work, tracked) = run(granted);
                    this.stage.set(Stage::Running { work, aside: Aside { tracked, runtime, span } });
                }
                (ControlFlow::Continue(_), None) => return Poll::Pending, // polled after it was ready
            }
        }
        match this.stage.project() {
            StageProj::Running { work, .. } => work.poll(cx),
            StageProj::Asking { .. } => Poll::Pending, // it was set above
        }
    }
}

impl<A, R, W, G> Startable for Keyed<A, R, W>
where
    Self: Send + 'static,
    A: Future<Output = ControlFlow<W::Output, G>>,
    R: FnOnce(G) -> (W, TaskTrackerToken),
    W: Future,
{
    fn has_started(&self) -> bool {
        matches!(self.stage, Stage::Running { .. })
    }

    fn carry_on(self: Pin<Box<Self>>) {
        let Stage::Running { aside, .. } = &self.stage else { return };
        let Aside { tracked, runtime, span } = aside.clone();
        tracing::debug!(parent: &span, "the client left; the work goes on");
        tracked.task_tracker().spawn_on(async { drop(self.await) }.instrument(span), &runtime);
    }
}

/// Where work goes on that is dropped.
#[derive(Clone)]
struct Aside {
    /// A drain waits for it from its beginning.
    tracked: TaskTrackerToken,
    runtime: Handle,
    span: Span,
}

/// Runs in place, without a spawn, and carries on elsewhere when it is dropped after it started.
struct Detaching<T>(Option<Pin<Box<dyn Startable<Output = T> + Send>>>);

impl<T> Detaching<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: work that panicked is not handed to a task that would poll it again.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<T> Drop for Detaching<T> {
    fn drop(&mut self) {
        let Some(work) = self.0.take_if(|work| work.has_started()) else { return };
        metrics::counter!("idempotency_detached_total").increment(1);
        work.carry_on();
    }
}
