//! From the handler's response to the record and the client.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::Either;
use http::header::LOCATION;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use idempotency::transaction::TransactionState;
use idempotency::{Engine, Held, Operation, Outcome, Recorded, Recovery, Store};

use crate::Verdict;
use crate::body::{BodyEnd, BoxError, OnEnd, ResponseBody, WatchedBody};
use crate::layer::Config;
use crate::media_type::MediaType;
use crate::pieces::Pieces;
use crate::problem::Refusal;
use crate::stored::{self, SetCookie, StoredResponse};
use crate::whole::OnRecord;

/// What is needed to record a response.
pub(crate) struct Recording<St> {
    pub(crate) engine: Engine<St>,
    pub(crate) config: Arc<Config>,
    pub(crate) operation: Operation,
}

/// A response body as far as it was read.
enum Read<B> {
    Whole {
        bytes: Bytes,
        trailers: Option<Box<HeaderMap>>,
    },
    /// Too long, or a stream: it goes to the client as it comes.
    Stream(Begun<B>),
    /// The handler broke it off.
    BrokenOff(Begun<B>),
    /// The handler panicked in it.
    Panicked,
}

/// What was read of a body, and the body.
struct Begun<B> {
    first: Pieces,
    /// What it was broken off with.
    broken: Option<BoxError>,
    rest: Pin<Box<B>>,
}

impl<St: Store> Recording<St> {
    /// Settles `held` by the handler's response, and gives the client what is then on record.
    pub(crate) fn respond<B>(
        self,
        held: Held<St>,
        response: Response<B>,
    ) -> impl Future<Output = Response<ResponseBody<B>>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        // What is taken apart outside of a future has no second place in it.
        let (mut parts, body) = response.into_parts();
        async move {
            let refusal = parts.extensions.get::<Refusal>();
            let unknown = refusal.is_some_and(Refusal::is_unknown);
            let asks_for_retry = refusal.is_some_and(Refusal::retryable);
            // Not an answer to this key, but another layer's "ask again", or "nobody knows": on record it would be repeated for ever.
            let implied = (unknown || asks_for_retry).then_some(Verdict::Release);
            let said = parts.extensions.remove::<Verdict>().or(implied);
            let transaction = held.attempt().transaction();
            if let Some(mark) = &self.config.replay_header {
                // A handler may forward somebody else's replay; to this client it is the first answer.
                parts.headers.remove(mark);
            }
            let verdict = said.unwrap_or_else(|| self.config.record.verdict(parts.status, held.recovery()));
            let verdict = match transaction {
                TransactionState::None => verdict,
                TransactionState::Committed if parts.extensions.remove::<OnRecord>().is_some() => {
                    return Response::from_parts(parts, ResponseBody::untouched(body));
                }
                // Another answer than the one that was committed: one key has one answer.
                TransactionState::Committed => return Box::pin(self.answer_on_record()).await,
                TransactionState::Superseded => return Box::pin(self.answer_on_record()).await,
                TransactionState::Unknown => return self.not_recorded(),
                TransactionState::NotCommitted | TransactionState::Open | TransactionState::NotBegun => {
                    match after_roll_back(transaction, said, verdict, parts.status) {
                        Some(verdict) => verdict,
                        None if held.may_release() => return Box::pin(self.release_and_refuse(held)).await,
                        // A call to an external API is not rolled back with it.
                        None => return Box::pin(self.hold(held, Response::from_parts(parts, body), true)).await,
                    }
                }
            };
            // A call to an external API may have had its effect: no other one may be made under this key, and the answer is kept.
            let is_held = held.recovery() == Recovery::Hold && (unknown || !held.may_release());
            let verdict = if verdict == Verdict::Release && is_held { Verdict::InDoubt } else { verdict };
            if verdict == Verdict::InDoubt && (unknown || asks_for_retry) {
                // Not this one: whoever asks again is told by the layer, and nothing runs then, so it must not ask for a retry.
                return Box::pin(self.hold(held, Response::from_parts(parts, body), asks_for_retry)).await;
            }
            if verdict == Verdict::Release {
                return match Box::pin(held.release()).await {
                    Recorded::Superseded => Box::pin(self.answer_on_record()).await,
                    Recorded::Applied | Recorded::Pending(_) => {
                        Response::from_parts(parts, ResponseBody::untouched(body))
                    }
                };
            }
            match self.read(&mut parts, body).await {
                Read::Whole { bytes, trailers } => {
                    let recovery = held.recovery();
                    match self.record(held, verdict, &parts, &bytes, trailers.is_none()).await {
                        Recorded::Superseded => Box::pin(self.answer_on_record()).await,
                        Recorded::Pending(_) if recovery == Recovery::Rerun && verdict == Verdict::Record => {
                            self.not_recorded()
                        }
                        Recorded::Applied | Recorded::Pending(_) => {
                            Response::from_parts(parts, ResponseBody::with_trailers(bytes, trailers))
                        }
                    }
                }
                Read::Stream(begun) => Box::pin(self.stream(held, verdict, said, parts, begun)).await,
                Read::BrokenOff(begun) => match Box::pin(self.after_break(held, said, &parts)).await {
                    Recorded::Superseded => Box::pin(self.answer_on_record()).await,
                    Recorded::Applied | Recorded::Pending(_) => self.watched(parts, begun, nothing()),
                },
                Read::Panicked => Box::pin(self.after_panic(held)).await,
            }
        }
    }

    /// Leaves the key in doubt and the handler's refusal unrecorded; says so itself where that one asks for a retry.
    async fn hold<B>(&self, held: Held<St>, refused: Response<B>, asks_for_retry: bool) -> Response<ResponseBody<B>> {
        let attempt = Some(held.attempt().number());
        match held.mark_in_doubt(None).await {
            Recorded::Superseded => Box::pin(self.answer_on_record()).await,
            Recorded::Applied | Recorded::Pending(_) if asks_for_retry => {
                let unknown = Refusal::OutcomeUnknown { since: None, attempt, retry_after: None };
                self.config.refuse(unknown).map(ResponseBody::whole)
            }
            Recorded::Applied | Recorded::Pending(_) => refused.map(ResponseBody::untouched),
        }
    }

    /// The handler broke its answer off. What it said itself counts.
    async fn after_break(&self, held: Held<St>, said: Option<Verdict>, parts: &Parts) -> Recorded {
        match said {
            Some(Verdict::Record) => held.complete(not_kept(parts)).await,
            Some(Verdict::InDoubt) => held.mark_in_doubt(None).await,
            Some(Verdict::Release) | None => after_unknown(held).await,
        }
    }

    /// The handler panicked before anything was sent.
    pub(crate) async fn after_panic<B>(&self, held: Held<St>) -> Response<ResponseBody<B>> {
        // Not what it said, which may quote the request. The process's panic hook has told that already, or was set not to.
        tracing::error!(attempt = ?held.attempt(), "the handler panicked");
        match held.attempt().transaction() {
            TransactionState::Committed => return Box::pin(self.answer_on_record()).await,
            TransactionState::Unknown => return self.not_recorded(),
            _ => {}
        }
        match after_unknown(held).await {
            Recorded::Superseded => Box::pin(self.answer_on_record()).await,
            Recorded::Applied | Recorded::Pending(_) => {
                self.config.refuse(Refusal::HandlerPanicked).map(ResponseBody::whole)
            }
        }
    }

    /// Reads the body, if it is one to be stored.
    async fn read<B>(&self, parts: &mut Parts, body: B) -> Read<B>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let limit = self.config.max_response;
        let streamed = parts.extensions.remove::<StreamThrough>().is_some() || is_event_stream(&parts.headers);
        let too_long = body.size_hint().lower() > limit as u64;
        let mut begun = Begun { first: Pieces::default(), broken: None, rest: Box::pin(body) };
        if streamed || too_long {
            return Read::Stream(begun);
        }
        let mut trailers = None;
        loop {
            let frame = match AssertUnwindSafe(begun.rest.frame()).catch_unwind().await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    begun.broken = Some(error.into());
                    return Read::BrokenOff(begun);
                }
                Err(_) => return Read::Panicked,
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => {
                    trailers = other.into_trailers().ok().map(Box::new);
                    continue;
                }
            };
            begun.first.push(data);
            if begun.first.length() > limit {
                return Read::Stream(begun);
            }
        }
        Read::Whole { bytes: begun.first.join(), trailers }
    }

    /// Records a response that was read to its end.
    fn record(
        &self,
        held: Held<St>,
        verdict: Verdict,
        parts: &Parts,
        bytes: &[u8],
        replayable: bool,
    ) -> impl Future<Output = Recorded> + use<St> {
        // A response with trailers is not: they are not stored.
        let outcome =
            if replayable { self.config.outcome(parts.status, &parts.headers, bytes) } else { not_kept(parts) };
        match verdict {
            Verdict::InDoubt => {
                Either::Left(held.mark_in_doubt(Some(outcome).filter(|outcome| outcome.payload().is_some())))
            }
            Verdict::Record | Verdict::Release => Either::Right(held.complete(outcome)),
        }
    }

    /// Passes a response on as it comes. Under `Hold` it is recorded as executed at its end; under `Rerun` before its first byte,
    /// because no success may be sent that is not on record.
    async fn stream<B>(
        &self,
        held: Held<St>,
        verdict: Verdict,
        said: Option<Verdict>,
        parts: Parts,
        begun: Begun<B>,
    ) -> Response<ResponseBody<B>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let executed = not_kept(&parts);
        let recorded = match (verdict, held.recovery()) {
            (Verdict::InDoubt, _) => held.mark_in_doubt(None).await,
            (_, Recovery::Hold) => return self.watched(parts, begun, at_the_end(held, executed, said)),
            (_, Recovery::Rerun) => held.complete(executed).await,
        };
        match recorded {
            Recorded::Superseded => Box::pin(self.answer_on_record()).await,
            Recorded::Pending(_) if verdict == Verdict::Record => self.not_recorded(),
            Recorded::Applied | Recorded::Pending(_) => self.watched(parts, begun, nothing()),
        }
    }

    fn watched<B>(&self, parts: Parts, begun: Begun<B>, on_end: OnEnd) -> Response<ResponseBody<B>>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let tracker = self.engine.tracker().clone();
        let data = begun.first.into_iter().map(|data| Ok(Frame::data(data)));
        let first = data.chain(begun.broken.map(Err)).collect();
        let body = WatchedBody::new(first, begun.rest, tracker, on_end);
        Response::from_parts(parts, ResponseBody::watched(body))
    }

    /// The attempt's own answer is thrown away; what is on record is the only one.
    async fn answer_on_record<B>(&self) -> Response<ResponseBody<B>> {
        match self.engine.look(&self.operation).await {
            Ok(claimed) => self.config.answer(claimed),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "superseded, and the record cannot be read");
                self.not_recorded()
            }
        }
    }

    /// For certain nothing stays of the effect, and the answer that the handler made of it is none.
    async fn release_and_refuse<B>(&self, held: Held<St>) -> Response<ResponseBody<B>> {
        match held.release().await {
            Recorded::Superseded => Box::pin(self.answer_on_record()).await,
            Recorded::Applied | Recorded::Pending(_) => self.not_recorded(),
        }
    }

    fn not_recorded<B>(&self) -> Response<ResponseBody<B>> {
        self.config.refuse(Refusal::not_recorded()).map(ResponseBody::whole)
    }
}

impl Config {
    /// A response as it is recorded.
    pub(crate) fn outcome(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Outcome {
        let outcome = outcome(status, headers, body, self.set_cookie);
        if outcome.size() > self.max_stored() { outcome.without_payload() } else { outcome }
    }
}

/// What becomes of the key of a handler whose transaction is rolled back; none when what it answered cannot be true.
fn after_roll_back(
    transaction: TransactionState,
    said: Option<Verdict>,
    verdict: Verdict,
    status: StatusCode,
) -> Option<Verdict> {
    let refused = status.is_client_error();
    match (transaction, said) {
        // The handler knows of something outside of its transaction.
        (_, Some(Verdict::InDoubt)) => said,
        // A commit that failed: the client is to ask again, unless the handler knows better.
        (TransactionState::NotCommitted, _) => refused.then(|| said.unwrap_or(Verdict::Release)),
        // Never committed. A decision, such as a declined card, is recorded like any other.
        _ if refused => Some(if verdict == Verdict::InDoubt { Verdict::Release } else { verdict }),
        _ if status.is_server_error() => Some(said.unwrap_or(Verdict::Release)),
        // The handler went another way, and answers for it.
        (TransactionState::NotBegun, _) if !status.is_server_error() => Some(verdict),
        // Not executed: "ask elsewhere".
        _ if status.is_redirection() && verdict == Verdict::Release => Some(verdict),
        _ => {
            tracing::error!(%status, "the handler began a transaction and did not commit it: its effect is rolled back");
            None
        }
    }
}

/// The handler ended without an answer.
pub(crate) async fn after_unknown<St: Store>(held: Held<St>) -> Recorded {
    match (held.attempt().transaction(), held.recovery()) {
        // It is, or will be, on record.
        (TransactionState::Committed | TransactionState::Unknown, _) => Recorded::Applied,
        (TransactionState::Superseded, _) => Recorded::Superseded,
        // Rolled back: nothing happened.
        (TransactionState::Open | TransactionState::NotCommitted, _) => held.release().await,
        // One that could not be begun says nothing about what else the handler did.
        (TransactionState::None | TransactionState::NotBegun, Recovery::Hold) => held.mark_in_doubt(None).await,
        (TransactionState::None | TransactionState::NotBegun, Recovery::Rerun) => held.release().await,
    }
}

/// A response as this crate records it, for whoever [resolves](idempotency::Store::resolve) a record in doubt by what is now known
/// to have happened: duplicates then get this response. `Set-Cookie` is left out.
#[must_use]
pub fn recorded(response: Response<Bytes>) -> Outcome {
    let (parts, body) = response.into_parts();
    outcome(parts.status, &parts.headers, &body, SetCookie::default())
}

fn outcome(status: StatusCode, headers: &HeaderMap, body: &[u8], set_cookie: SetCookie) -> Outcome {
    let kept = stored::keep(headers, set_cookie);
    let payload = StoredResponse::encode(status, &kept, body);
    Outcome::new(status.as_u16(), payload).with_location(location(headers))
}

fn not_kept(parts: &Parts) -> Outcome {
    Outcome::not_kept(parts.status.as_u16()).with_location(location(&parts.headers))
}

fn location(headers: &HeaderMap) -> Option<&str> {
    headers.get(LOCATION)?.to_str().ok()
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    MediaType::of(headers).is_some_and(|media_type| media_type.is("text/event-stream"))
}

/// What the handler `said` itself counts for a body that is broken off, too.
fn at_the_end<St: Store>(held: Held<St>, executed: Outcome, said: Option<Verdict>) -> OnEnd {
    Box::new(move |end| {
        async move {
            match end {
                BodyEnd::BrokenOff if said != Some(Verdict::Record) => held.mark_in_doubt(None).await,
                BodyEnd::BrokenOff | BodyEnd::Whole => held.complete(executed).await,
            };
        }
        .boxed()
    })
}

/// For a response whose record does not wait for its end.
fn nothing() -> OnEnd {
    Box::new(|_| std::future::ready(()).boxed())
}

/// In the extensions of a handler's response: pass it on as it comes, without reading it first. It is recorded as executed, and a
/// duplicate is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamThrough;
