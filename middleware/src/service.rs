//! The service that the layer makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{Request, Response};
use http_body::Body;
use idempotency::{Engine, Store};
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::future::ResponseFuture;
use crate::keyed::Keyed;
use crate::layer::{Config, KeySource};
use crate::problem::Refusal;
use crate::{KeyRequired, header_key};

/// A service with [`IdempotencyLayer`](crate::IdempotencyLayer) around it.
#[derive(Debug)]
pub struct Idempotency<S, St> {
    inner: S,
    engine: Engine<St>,
    config: Arc<Config>,
}

impl<S: Clone, St> Clone for Idempotency<S, St> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), engine: self.engine.clone(), config: Arc::clone(&self.config) }
    }
}

impl<S, St> Idempotency<S, St> {
    pub(crate) fn new(inner: S, engine: Engine<St>, config: Arc<Config>) -> Self {
        Self { inner, engine, config }
    }
}

impl<S, St, ReqBody, ResBody> Service<Request<ReqBody>> for Idempotency<S, St>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    St: Store,
    ReqBody: Body + From<Bytes> + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        if !self.config.protects(&request) {
            return ResponseFuture::pass(self.inner.call(request));
        }
        let key = match &self.config.key_source {
            KeySource::Function(_) => None,
            KeySource::Header(name) => match header_key::parse(request.headers(), name, &self.config.key_rules) {
                Ok(Some(key)) => Some(key),
                Ok(None) if self.config.key_required == KeyRequired::Optional => {
                    return ResponseFuture::pass(self.inner.call(request));
                }
                Ok(None) => return ResponseFuture::refuse(self.config.refuse(Refusal::KeyMissing)),
                Err(fault) => return ResponseFuture::refuse(self.config.refuse(Refusal::KeyInvalid(fault.into()))),
            },
        };
        // The clone may not be ready; the service that was polled ready must be the one that is called.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let keyed = Keyed::new(ready, self.engine.clone(), Arc::clone(&self.config));
        ResponseFuture::keyed(|started| keyed.run(request, key, started), self.engine.tracker())
    }
}

impl Config {
    /// Whether a request is one that this layer looks for a key on.
    fn protects<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        // Media types are the same in any case (RFC 9110 section 8.3.1).
        let grpc = |value: &http::HeaderValue| {
            value.as_bytes().get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        };
        self.methods.contains(request.method())
            && !headers.get_all(UPGRADE).iter().any(is_upgrade)
            && !headers.get(CONTENT_TYPE).is_some_and(grpc)
    }

    pub(crate) fn refuse(&self, refusal: Refusal) -> Response<Bytes> {
        metrics::counter!("idempotency_refused_total", "reason" => refusal.problem_type()).increment(1);
        tracing::debug!(reason = refusal.problem_type(), "refused");
        self.problems.answer(refusal)
    }
}

/// Of `application/grpc`, `application/grpc+proto`, `application/grpc-web`, ...
const GRPC: &[u8] = b"application/grpc";

/// Whether the client wants to leave HTTP behind. An offer of `h2c` does not: some HTTP clients put it on every plain
/// request, and their keys must not be ignored for it.
fn is_upgrade(value: &http::HeaderValue) -> bool {
    let mut protocols = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    protocols.any(|protocol| !protocol.eq_ignore_ascii_case(b"h2c"))
}
