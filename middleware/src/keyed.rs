//! A request with a key: read, claim, run, record, or answer from the record.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use idempotency::{Answer, Attempt, Engine, Held, Key, Operation, Store, StoreError};
use tower_service::Service;

use crate::KeyRequired;
use crate::body::{BoxError, ResponseBody};
use crate::future::Started;
use crate::layer::{Config, KeySource, Outage};
use crate::problem::Refusal;
use crate::recording::{Recording, after_unknown};
use crate::scope::ScopeMissing;

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

    /// `key` is the header's; none when a function is to find it. Sets `started` once the claim is granted: from then on the work must
    /// go on whoever leaves.
    pub(crate) async fn run<ReqBody, ResBody>(
        mut self,
        request: Request<ReqBody>,
        key: Option<Key>,
        started: Started,
    ) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
        ReqBody: Body + From<Bytes>,
        ReqBody::Error: Into<BoxError>,
        ResBody: Body<Data = Bytes> + Send + 'static,
        ResBody::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let prepared = match read(body, self.config.max_request).await {
            Ok(bytes) => self.config.prepare(&parts, &bytes, key).map(|operation| (bytes, operation)),
            Err(refusal) => Err(refusal),
        };
        let (bytes, operation) = match prepared {
            Ok((bytes, Some(operation))) => (bytes, operation),
            Ok((bytes, None)) => return self.pass(Request::from_parts(parts, bytes.into())).await,
            Err(refusal) => return Ok(self.config.refuse(refusal).map(ResponseBody::whole)),
        };
        if parts.extensions.get::<Attempt>().is_some_and(|outer| *outer.record_id() == operation.record_id()) {
            // The layer is mounted twice, and the outer one holds this very claim.
            return self.pass(Request::from_parts(parts, bytes.into())).await;
        }
        // Whoever leaves while the store is asked, or while another attempt is waited for, has run nothing: the claim is abandoned.
        let answer = self.engine.claim(&operation).await;
        let request = Request::from_parts(parts, bytes.into());
        match answer {
            Ok(Answer::Run(held)) => {
                started.set();
                let tracked = self.engine.tracker().token();
                let response = self.execute(held, &operation, request).await;
                drop(tracked);
                response
            }
            Ok(Answer::DoNot(claimed)) => Ok(self.config.answer(claimed)),
            Err(error) => self.outage(error, request).await,
        }
    }

    /// Calls the handler without protection.
    async fn pass<ReqBody, ResBody>(&mut self, request: Request<ReqBody>) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
        Ok(self.service.call(request).await?.map(ResponseBody::untouched))
    }

    async fn outage<ReqBody, ResBody>(
        &mut self,
        error: StoreError,
        request: Request<ReqBody>,
    ) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    {
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

    async fn execute<ReqBody, ResBody>(
        &mut self,
        held: Held<St>,
        operation: &Operation,
        mut request: Request<ReqBody>,
    ) -> Responded<ResBody, S::Error>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
        ResBody: Body<Data = Bytes> + Send + 'static,
        ResBody::Error: Into<BoxError>,
    {
        held.attempt().attach(Arc::clone(&self.config));
        request.extensions_mut().insert(held.attempt().clone());
        let service = &mut self.service;
        let handled = AssertUnwindSafe(async { service.call(request).await }).catch_unwind().await;
        let recording = Recording { engine: &self.engine, config: &self.config, operation };
        match handled {
            Ok(Ok(response)) => Ok(recording.respond(held, response).await),
            Ok(Err(error)) => {
                after_unknown(held).await;
                Err(error)
            }
            Err(panic) => Ok(recording.after_panic(held, panic).await),
        }
    }
}

/// Reads a request's body. Whoever leaves before its end has run nothing.
async fn read<B>(body: B, limit: usize) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Refusal::RequestTooLarge { limit: limit as u64 });
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::RequestTooLarge { limit: limit as u64 }),
        Err(error) => {
            tracing::debug!(error = &*error as &dyn std::error::Error, "the request body broke off");
            Err(Refusal::RequestUnreadable)
        }
    }
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
        let uri = original_uri(parts);
        let fingerprint = self.fingerprint.compute(parts, (uri.path(), uri.query()), body);
        let room = u32::try_from(self.max_stored()).unwrap_or(u32::MAX);
        Ok(Some(Operation { scope, key, fingerprint, key_time, room }))
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
