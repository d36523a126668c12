//! Bodies on both sides of the layer.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use pin_project_lite::pin_project;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The error of any body here.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project! {
    /// A request body for services whose own body type cannot be made from bytes, such as hyper's `Incoming`.
    ///
    /// The layer reads a keyed request's body before it asks the store, and hands it on as bytes. A server over bare hyper maps
    /// its requests first: `.map_request(|request: Request<Incoming>| request.map(RequestBody::new))`.
    #[derive(Debug)]
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestKind<B>,
    }
}

pin_project! {
    #[project = RequestKindProj]
    #[derive(Debug)]
    enum RequestKind<B> {
        Untouched { #[pin] body: B },
        Read { bytes: Option<Bytes> },
    }
}

impl<B> RequestBody<B> {
    /// Wraps a body as it came.
    pub fn new(body: B) -> Self {
        Self { kind: RequestKind::Untouched { body } }
    }
}

impl<B> From<Bytes> for RequestBody<B> {
    fn from(bytes: Bytes) -> Self {
        Self { kind: RequestKind::Read { bytes: Some(bytes).filter(|b| !b.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            RequestKindProj::Untouched { body } => body.poll_frame(cx),
            RequestKindProj::Read { bytes } => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestKind::Untouched { body } => body.is_end_stream(),
            RequestKind::Read { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestKind::Untouched { body } => body.size_hint(),
            RequestKind::Read { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
        }
    }
}

pin_project! {
    /// The body of every response of the layer: the handler's own, recorded bytes, or a stream that is watched to its end.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: ResponseKind<B>,
    }
}

pin_project! {
    #[project = ResponseKindProj]
    #[derive(Debug)]
    enum ResponseKind<B> {
        Untouched { #[pin] body: B },
        Whole { bytes: Option<Bytes>, trailers: Option<Box<HeaderMap>> },
        Watched { body: WatchedBody },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn untouched(body: B) -> Self {
        Self { kind: ResponseKind::Untouched { body } }
    }

    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::with_trailers(bytes, None)
    }

    pub(crate) fn with_trailers(bytes: Bytes, trailers: Option<Box<HeaderMap>>) -> Self {
        Self { kind: ResponseKind::Whole { bytes: Some(bytes).filter(|b| !b.is_empty()), trailers } }
    }

    pub(crate) fn watched(body: WatchedBody) -> Self {
        Self { kind: ResponseKind::Watched { body } }
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            ResponseKindProj::Untouched { body } => body.poll_frame(cx).map_err(Into::into),
            ResponseKindProj::Whole { bytes, trailers } => {
                let frame = bytes
                    .take()
                    .map(Frame::data)
                    .or_else(|| trailers.take().map(|trailers| Frame::trailers(*trailers)));
                Poll::Ready(frame.map(Ok))
            }
            ResponseKindProj::Watched { body } => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseKind::Untouched { body } => body.is_end_stream(),
            ResponseKind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            ResponseKind::Watched { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseKind::Untouched { body } => body.size_hint(),
            ResponseKind::Whole { bytes, .. } => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            ResponseKind::Watched { body } => body.size_hint(),
        }
    }
}

/// How a watched body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The handler sent all of it.
    Whole,
    /// The handler broke it off, or did not come to an end within the bound after the client had left.
    BrokenOff,
}

/// What is done when a watched body ended, before its reader learns of the end.
pub(crate) type OnEnd = Box<dyn FnOnce(BodyEnd) -> BoxFuture<'static, ()> + Send>;

/// A response body that is passed on as it comes and whose end is recorded. If its reader leaves, the rest is drained in a tracked
/// task, within a bound, so that it is recorded like any other. Boxed, so that the other bodies stay small.
pub(crate) struct WatchedBody(Option<Box<Watched>>);

struct Watched {
    first: VecDeque<Result<Frame<Bytes>, BoxError>>,
    flushed: bool,
    rest: Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>,
    end: End,
    /// A drain of the layer's work waits for this too.
    _tracked: TaskTrackerToken,
    tracker: TaskTracker,
    runtime: tokio::runtime::Handle,
}

enum End {
    ToCome(OnEnd),
    /// With what the reader gets once it is recorded: the last frame, or the error.
    Recording {
        recording: BoxFuture<'static, ()>,
        last: Option<Result<Frame<Bytes>, BoxError>>,
    },
    Over,
}

impl WatchedBody {
    /// `first` was already read; `rest` is to come.
    pub(crate) fn new<B>(
        first: VecDeque<Result<Frame<Bytes>, BoxError>>,
        rest: B,
        tracker: TaskTracker,
        on_end: OnEnd,
    ) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let rest = Box::pin(rest.map_err(Into::into));
        let runtime = tokio::runtime::Handle::current();
        let _tracked = tracker.token();
        let watched = Watched { first, flushed: false, rest, end: End::ToCome(on_end), _tracked, tracker, runtime };
        Self(Some(Box::new(watched)))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(watched) if watched.first.is_empty() => watched.rest.size_hint(),
            Some(watched) => {
                let read = |frame: &Result<Frame<Bytes>, BoxError>| {
                    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64)
                };
                let read: u64 = watched.first.iter().map(read).sum();
                let rest = watched.rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper() {
                    hint.set_upper(upper.saturating_add(read));
                }
                hint
            }
            None => SizeHint::with_exact(0),
        }
    }

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.get_mut().0 {
            Some(watched) => watched.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }
}

impl Watched {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let End::ToCome(_) = self.end {
            if !self.flushed && matches!(self.first.front(), Some(Err(_))) {
                // What came before the error is with the server and not yet on the wire: hyper flushes when it must wait.
                self.flushed = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let frame = match self.first.pop_front() {
                Some(frame) => Some(frame),
                // A panic counts as breaking off: nobody must poll such a body again.
                None => match catch_unwind(AssertUnwindSafe(|| self.rest.as_mut().poll_frame(cx))) {
                    Ok(polled) => ready!(polled),
                    Err(_) => Some(Err("the handler panicked in its response's body".into())),
                },
            };
            match frame {
                // A reader who knows the length stops at the last byte, so the end is recorded before that is handed out.
                Some(Ok(frame)) if self.is_last() => self.begin_recording(BodyEnd::Whole, Some(Ok(frame))),
                Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(error)) => self.begin_recording(BodyEnd::BrokenOff, Some(Err(error))),
                None => self.begin_recording(BodyEnd::Whole, None),
            }
        }
        if let End::Recording { recording, last } = &mut self.end {
            ready!(recording.as_mut().poll(cx));
            let last = last.take();
            self.end = End::Over;
            return Poll::Ready(last);
        }
        Poll::Ready(None)
    }

    fn is_last(&self) -> bool {
        self.first.is_empty() && self.rest.is_end_stream()
    }

    /// Nothing, if it has begun: a recording that is under way is not given up.
    fn begin_recording(&mut self, end: BodyEnd, last: Option<Result<Frame<Bytes>, BoxError>>) {
        self.end = match std::mem::replace(&mut self.end, End::Over) {
            End::ToCome(on_end) => End::Recording { recording: on_end(end), last },
            begun => begun,
        };
    }

    /// Reads and drops what is left, within the bound, and records the end.
    async fn drain(mut self: Box<Self>) {
        let to_the_end = async { while std::future::poll_fn(|cx| self.poll_frame(cx)).await.is_some() {} };
        if timeout(DRAIN_LIMIT, to_the_end).await.is_err() {
            self.begin_recording(BodyEnd::BrokenOff, None);
            std::future::poll_fn(|cx| self.poll_frame(cx)).await;
        }
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if let Some(watched) = self.0.take_if(|watched| !matches!(watched.end, End::Over)) {
            let (tracker, runtime) = (watched.tracker.clone(), watched.runtime.clone());
            tracker.spawn_on(watched.drain(), &runtime);
        }
    }
}

impl fmt::Debug for WatchedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchedBody")
    }
}

/// How long the rest of a streamed response is read for after its client left.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);
