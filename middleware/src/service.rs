//! The service that the layer makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, Version};
use http_body::Body;
use idempotency::{Engine, Key, Store};
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::future::ResponseFuture;
use crate::keyed::{Granted, Keyed};
use crate::layer::{Config, KeySource};
use crate::media_type::MediaType;
use crate::problem::Refusal;
use crate::{InvalidKeyHeader, KeyRequired, header_key};

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
        if !self.config.methods.contains(request.method()) {
            return ResponseFuture::pass(self.inner.call(request));
        }
        let key = match &self.config.key_source {
            KeySource::Function(_) => None,
            KeySource::Header(name) => Some(header_key::parse(request.headers(), name, &self.config.key_rules)),
        };
        if self.config.passes(&request, key.as_ref()) {
            return ResponseFuture::pass(self.inner.call(request));
        }
        let key = match key.transpose() {
            Ok(Some(None)) => return ResponseFuture::refuse(self.config.refuse(Refusal::KeyMissing)),
            Ok(key) => key.flatten(),
            Err(fault) => return ResponseFuture::refuse(self.config.refuse(Refusal::KeyInvalid(fault.into()))),
        };
        // The clone may not be ready; the service that was polled ready must be the one that is called.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let keyed = Keyed::new(ready, self.engine.clone(), Arc::clone(&self.config));
        ResponseFuture::keyed(keyed.ask(request, key), Granted::run)
    }
}

impl Config {
    /// Whether a request of a protected method passes all the same. `key` is what its header holds; none where a function finds it. Where
    /// a key is required, nothing a client can say leads past it.
    fn passes<B>(&self, request: &Request<B>, key: Option<&Result<Option<Key>, InvalidKeyHeader>>) -> bool {
        self.key_required == KeyRequired::Optional
            && (matches!(key, Some(Ok(None))) || is_upgrade(request) || is_grpc(request))
    }

    pub(crate) fn refuse(&self, refusal: Refusal) -> Response<Bytes> {
        metrics::counter!("idempotency_refused_total", "reason" => refusal.problem_type()).increment(1);
        tracing::debug!(reason = refusal.problem_type(), "refused");
        self.problems.answer(refusal)
    }
}

/// Whether the client wants to leave HTTP behind (RFC 9110 section 7.8): HTTP/1.1, with `Connection: upgrade`, and to a
/// protocol that is not HTTP again. Some clients offer `h2c` or TLS on plain requests, and their keys must not be ignored for it.
fn is_upgrade<B>(request: &Request<B>) -> bool {
    let lists = |name, holds: fn(&[u8]) -> bool| {
        let values = request.headers().get_all(name).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(|item| holds(item.trim_ascii()))
    };
    request.version() == Version::HTTP_11
        && request.headers().contains_key(UPGRADE)
        && lists(CONNECTION, |option| option.eq_ignore_ascii_case(b"upgrade"))
        && lists(UPGRADE, |protocol| !stays_http(protocol))
}

fn stays_http(protocol: &[u8]) -> bool {
    let starts = |name: &[u8]| protocol.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
    protocol.is_empty() || starts(b"h2c") || starts(b"http/") || starts(b"tls/")
}

/// Whether it is a gRPC call, whose status is in trailers. With a JSON codec it is also what a JSON handler takes, and is protected.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let Some(media_type) = MediaType::of(request.headers()) else { return false };
    let rest = media_type.after("application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b'-')) && !media_type.ends_with("+json"))
}
