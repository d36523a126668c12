//! A request with a key: read, claim, run, record, or answer from the record.

use std::future::ready;
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, LengthLimitError};
use idempotency::{Answer, Attempt, Engine, Held, Key, Operation, Store, StoreError};
use tokio_util::task::task_tracker::TaskTrackerToken;
use tower_service::Service;

use crate::body::{BoxError, ResponseBody};
use crate::layer::{Config, KeySource, Outage};
use crate::pieces::Pieces;
use crate::problem::Refusal;
use crate::recording::{Recording, after_unknown};
use crate::scope::ScopeMissing;
use crate::{KeyFormat, KeyRequired};

/// One keyed request on its way.
pub(crate) struct Keyed<S, St: Store> {
    service: S,
    engine: Engine<St>,
    config: Arc<Config>,
}

type Responded<B, E> = Result<Response<ResponseBody<B>>, E>;

impl<S, St: Store> Keyed<S, St> {
    /// `service` is ready to be called.
    pub(crate) fn new(service: S, engine: Engine<St>, config: Arc<Config>) -> Self {
        Self { service, engine, config }
    }

    /// The answer, or what may run. `key` is the header's; none when a function is to find it.
    pub(crate) fn ask<ReqBody, ResBody>(
        mut self,
        request: Request<ReqBody>,
        key: Option<Key>,
    ) -> impl Future<Output = ControlFlow<Responded<ResBody, S::Error>, Granted<S, St, ReqBody>>>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
        ReqBody: Body + From<Bytes>,
        ReqBody::Error: Into<BoxError>,
    {
        // Here and below: what is taken apart outside of a future has no second place in it.
        let (parts, body) = request.into_parts();
        async move {
            let bytes = match read(body, self.config.max_request).await {
                Ok(bytes) => bytes,
                Err(refusal) => return Break(Ok(self.config.refuse(refusal).map(ResponseBody::whole))),
            };
            // What was asked for has no place where the handler is called without a claim, which is rare.
            let error = 'ask: {
                let operation = match self.config.prepare(&parts, &bytes, key) {
                    Ok(Some(operation)) if !is_held_outside(&parts, &operation) => operation,
                    Ok(_) => break 'ask None,
                    Err(refusal) => return Break(Ok(self.config.refuse(refusal).map(ResponseBody::whole))),
                };
                // Whoever leaves while the store is asked, or while another attempt is waited for, has run nothing: the claim is abandoned.
                match self.engine.claim(&operation).await {
                    Ok(Answer::Run(held)) => {
                        let request = Request::from_parts(parts, bytes.into());
                        return Continue(Granted { keyed: self, held, operation, request });
                    }
                    Ok(Answer::DoNot(claimed)) => return Break(Ok(self.config.answer(claimed))),
                    Err(error) => Some(error),
                }
            };
            Break(Box::pin(self.without_claim(error, Request::from_parts(parts, bytes.into()))).await)
        }
    }

    /// Calls the handler without protection.
    async fn pass<ReqBody, ResBody>(&mut self, request: Request<ReqBody>) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        Ok(self.service.call(request).await?.map(ResponseBody::untouched))
    }

    /// There is nothing to claim, or the store could not say.
    async fn without_claim<ReqBody, ResBody>(
        &mut self,
        error: Option<StoreError>,
        request: Request<ReqBody>,
    ) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        let Some(error) = error else { return self.pass(request).await };
        tracing::warn!(error = &error as &dyn std::error::Error, "the store could not say whether to run");
        match self.config.outage {
            Outage::Refuse => Ok(self.config.refuse(Refusal::store_unavailable()).map(ResponseBody::whole)),
            Outage::Pass => {
                metrics::counter!("idempotency_unprotected_total").increment(1);
                let mut response = self.pass(request).await?;
                response.headers_mut().insert(UNPROTECTED, HeaderValue::from_static("true"));
                Ok(response)
            }
        }
    }
}

/// A request that may run.
pub(crate) struct Granted<S, St: Store, B> {
    keyed: Keyed<S, St>,
    held: Held<St>,
    operation: Operation,
    request: Request<B>,
}

impl<S, St: Store, ReqBody> Granted<S, St, ReqBody> {
    /// Begins the handler. Must be carried to its end whoever leaves.
    pub(crate) fn run<ResBody>(self) -> (impl Future<Output = Responded<ResBody, S::Error>>, TaskTrackerToken)
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
        S::Error: Send + 'static,
        ResBody: Body<Data = Bytes> + Send + 'static,
        ResBody::Error: Into<BoxError>,
    {
        let Self { keyed, held, operation, mut request } = self;
        let Keyed { mut service, engine, config } = keyed;
        let tracked = engine.tracker().token();
        held.attempt().attach(Arc::clone(&config));
        request.extensions_mut().insert(held.attempt().clone());
        let handling = match catch_unwind(AssertUnwindSafe(|| service.call(request))) {
            Ok(handling) => Either::Left(AssertUnwindSafe(handling).catch_unwind()),
            Err(panic) => Either::Right(ready(Err(panic))),
        };
        let recording = Recording { engine, config, operation };
        // One after the other in one place.
        let work = handling.then(move |handled| match handled {
            Ok(Ok(response)) => Either::Left(recording.respond(held, response).map(Ok)),
            Ok(Err(error)) => Either::Right(after_unknown(held).map(|_| Err(error)).boxed()),
            Err(_) => Either::Right(async move { Ok(recording.after_panic(held).await) }.boxed()),
        });
        (work, tracked)
    }
}

/// Whether the layer is mounted twice, and the outer one holds this very claim.
fn is_held_outside(parts: &Parts, operation: &Operation) -> bool {
    let outer = parts.extensions.get::<Attempt>();
    outer.is_some_and(|outer| *outer.record_id() == operation.record_id())
}

/// Reads a request's body. Whoever leaves before its end has run nothing.
async fn read<B>(body: B, limit: usize) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let too_large = || Refusal::RequestTooLarge { limit: Some(limit as u64) };
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut body = pin!(body);
    let mut pieces = Pieces::default();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) if data.remaining() > limit - pieces.length() => return Err(too_large()),
            Ok(Ok(mut data)) => pieces.push(data.copy_to_bytes(data.remaining())),
            Ok(Err(_)) => {} // trailers
            Err(error) => {
                let error: BoxError = error.into();
                // A limit outside of this layer; axum's body wraps what it is told.
                let mut causes = std::iter::successors(Some(&*error as &dyn std::error::Error), |error| error.source());
                if causes.any(|error| error.is::<LengthLimitError>()) {
                    return Err(Refusal::RequestTooLarge { limit: None });
                }
                tracing::debug!(error = &*error as &dyn std::error::Error, "the request body broke off");
                return Err(Refusal::RequestUnreadable);
            }
        }
    }
    Ok(pieces.join())
}

impl Config {
    /// What the request asks to have done once; none when it has no key and needs none.
    fn prepare(&self, parts: &Parts, body: &Bytes, key: Option<Key>) -> Result<Option<Operation>, Refusal> {
        let key = match (key, &self.key_source) {
            (None, KeySource::Function(find)) => match find(parts, body) {
                Some(text) => self.key_rules.parse(&text).map_err(|fault| Refusal::KeyInvalid(fault.into()))?,
                None if self.key_required == KeyRequired::Optional => return Ok(None),
                None => return Err(Refusal::KeyMissing),
            },
            (Some(key), _) => key,
            (None, KeySource::Header(_)) => return Err(Refusal::KeyMissing),
        };
        let scope = self.scope.tell(parts).map_err(|missing| match missing {
            ScopeMissing::FromClient => Refusal::ScopeMissing { ours: false },
            ScopeMissing::FromOurStack => Refusal::ScopeMissing { ours: true },
        })?;
        let key_time = self.key_format.time(&key).map_err(|fault| Refusal::KeyInvalid(fault.into()))?;
        // Without an age limit nothing is judged by it.
        let key_time = key_time.or_else(|| KeyFormat::hint(&key));
        let uri = original_uri(parts);
        let fingerprint = self.fingerprint.compute(parts, (uri.path(), uri.query()), body);
        let room = u32::try_from(self.max_stored()).unwrap_or(u32::MAX);
        Ok(Some(Operation { scope, key, fingerprint, key_time, room, route: self.route(parts) }))
    }

    /// The method and the pattern that the request's path matched, if it is traced and they are known: never the path, which may
    /// tell whose request it is.
    #[cfg(feature = "axum")]
    fn route(&self, parts: &Parts) -> Option<Arc<str>> {
        let matched = parts.extensions.get::<axum::extract::MatchedPath>().filter(|_| self.traced)?;
        Some(format!("{} {}", parts.method, matched.as_str()).into())
    }

    #[cfg(not(feature = "axum"))]
    #[expect(clippy::unused_self, reason = "it is said by a router, and there is none")]
    fn route(&self, _: &Parts) -> Option<Arc<str>> {
        None
    }

    /// The most bytes that a stored response takes: the body's limit and room for its head.
    pub(crate) fn max_stored(&self) -> usize {
        self.max_response.saturating_add(HEAD_ROOM)
    }
}

/// The URI that the client sent. Inside a nested axum router the request's own is cut.
#[cfg(feature = "axum")]
fn original_uri(parts: &Parts) -> &Uri {
    parts.extensions.get::<axum::extract::OriginalUri>().map_or(&parts.uri, |original| &original.0)
}

#[cfg(not(feature = "axum"))]
fn original_uri(parts: &Parts) -> &Uri {
    &parts.uri
}

/// Room for the head of a stored response, in bytes.
const HEAD_ROOM: usize = 16 * 1024;

/// Marks a response whose handler ran without protection.
const UNPROTECTED: HeaderName = HeaderName::from_static("idempotency-unprotected");
