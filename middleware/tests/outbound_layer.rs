//! The outbound layer around clients that are made up.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{DAY, Rig, TestStore, record_id};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use idempotency::faults::Op;
use idempotency::outbound::{
    Anchor, Decided, Found, Guard, KeyEncoding, KeyPlace, KeySupport, LONGEST_RESULT, Policy, Provider, ResolveStep,
    StepError, StepLabel, StepResolved, StepResult, StepVerdict, Steps as _, Window,
};
use idempotency::{
    Answer, Attempt, Engine, Fingerprint, Held, Key, Life, Operation, Recovery, ScopeId, Settings, TokenSource, Windows,
};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_idempotency::body::{BoxError, ResponseBody};
use tower_idempotency::outbound::{
    GuardedStep, Outbound, OutboundError, OutboundLayer, StepReplayed, Unguarded, result_of,
};
use tower_idempotency::{ForwardFencingToken, IdempotencyLayer, Refusal, Scope};

type Body = BoxBody<Bytes, BoxError>;
type Client = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, BoxError>;
type Guarded<S = Client> = Outbound<S, TestStore>;

/// A provider that keeps what it was sent and answers from a script, and with 200 after its end.
#[derive(Clone, Default)]
struct Bank {
    sent: Arc<Mutex<Vec<(Method, HeaderMap, Bytes)>>>,
    script: Arc<Mutex<VecDeque<Turn>>>,
}

enum Turn {
    Answer(u16, Body),
    Fail(BoxError),
    Stall,
}

#[derive(Debug)]
enum Broken {
    Refused,
    Reset,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Broken {}

impl Bank {
    fn with(script: impl IntoIterator<Item = Turn>) -> Self {
        Self { script: Arc::new(Mutex::new(script.into_iter().collect())), ..Self::default() }
    }

    fn client(&self) -> Client {
        let bank = self.clone();
        BoxCloneSyncService::new(service_fn(move |request| {
            let bank = bank.clone();
            async move { bank.answer(request).await }
        }))
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let number = {
            let mut sent = self.sent.lock().unwrap();
            sent.push((parts.method, parts.headers, body));
            sent.len()
        };
        let turn = self.script.lock().unwrap().pop_front();
        let (status, body) = match turn {
            None => (200, whole(format!("transfer {number}"))),
            Some(Turn::Answer(status, body)) => (status, body),
            Some(Turn::Fail(error)) => return Err(error),
            Some(Turn::Stall) => std::future::pending().await,
        };
        let response = Response::builder().status(status).header("Date", "now").header("Location", "/transfers/1");
        Ok(response.header("Link", "</a>").header("Link", "</b>").body(body)?)
    }

    fn count(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    fn headers(&self, name: &str) -> Vec<Option<String>> {
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|(_, headers, _)| Some(headers.get(name)?.to_str().unwrap().to_owned())).collect()
    }
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// So much, and then it breaks off.
fn half(bytes: &'static str) -> Body {
    let frames = [Ok(Frame::data(Bytes::from(bytes))), Err(BoxError::from("reset"))];
    BodyExt::boxed(StreamBody::new(stream::iter(frames)))
}

fn provider() -> Provider {
    Provider::new("bank", Duration::from_secs(1)).unwrap().refuses([402])
}

fn keys(place: KeyPlace) -> KeySupport {
    KeySupport::new(place, Window::new(DAY, Anchor::FirstRequest).unwrap(), KeyEncoding::Hex, 64).unwrap()
}

fn in_header() -> KeySupport {
    keys(KeyPlace::Header("Idempotency-Key".to_owned()))
}

fn guard(rig: &Rig, provider: Provider, policy: Policy) -> Guard<TestStore> {
    Guard::new(rig.store.clone(), provider, policy).unwrap()
}

fn held_layer(rig: &Rig) -> OutboundLayer<TestStore> {
    OutboundLayer::new(guard(rig, provider(), Policy::Hold))
}

fn thrice() -> Policy {
    Policy::retry(NonZeroU32::new(3).unwrap(), Duration::from_millis(1))
}

/// Runs of one record, one after the other.
struct Runs(Engine<TestStore>);

impl Runs {
    fn of(rig: &Rig) -> Self {
        let life = Life::new(Recovery::Rerun, Windows::default());
        Self(Engine::new(rig.store.clone(), Settings::default().life(life)))
    }

    async fn begin(&self) -> Held<TestStore> {
        let key = Key::parse("k").unwrap();
        match self.0.claim(&Operation::new(ScopeId::global(), key, Fingerprint::of(["payout"]))).await.unwrap() {
            Answer::Run(held) => held,
            Answer::DoNot(why) => panic!("{why:?}"),
        }
    }
}

fn post(attempt: &Attempt, label: &str) -> http::request::Builder {
    Request::post("https://bank.example/transfers")
        .header("Content-Type", "text/plain")
        .extension(GuardedStep::new(attempt, label).unwrap())
}

fn transfer(attempt: &Attempt) -> Request<Full<Bytes>> {
    post(attempt, "transfer").body(Full::new(Bytes::from("10 EUR"))).unwrap()
}

type Got = Result<Response<Bytes>, OutboundError>;

async fn send(client: &Guarded, request: Request<Full<Bytes>>) -> Got {
    collect(client.clone().oneshot(request).await?).await
}

async fn collect(response: Response<ResponseBody<Body>>) -> Got {
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, body.collect().await.unwrap().to_bytes()))
}

#[track_caller]
fn step_error(got: Got) -> StepError {
    match got.unwrap_err() {
        OutboundError::Step(step) | OutboundError::Client { step, .. } => step,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_unknown(got: Got) {
    let error = step_error(got);
    assert!(matches!(error, StepError::OutcomeUnknown { .. }), "{error:?}");
}

#[tokio::test]
async fn a_step_that_is_run_again_gets_the_very_response_of_the_first_time() {
    for status in [200, 402] {
        let (rig, bank) = (Rig::new(), Bank::with([Turn::Answer(status, whole(vec![0, 255, 10]))]));
        let client = ServiceBuilder::new().layer(held_layer(&rig)).service(bank.client());
        let held = Runs::of(&rig).begin().await;
        let first = send(&client, transfer(held.attempt())).await.unwrap();
        let again = send(&client, transfer(held.attempt())).await.unwrap();
        assert_eq!((first.status().as_u16(), &first.body()[..]), (status, [0, 255, 10].as_slice()));
        assert_eq!((again.status(), again.headers(), again.body()), (first.status(), first.headers(), first.body()));
        assert_eq!(first.headers().get_all("link").iter().count(), 2);
        assert!(!first.headers().contains_key("date"), "it is of one exchange");
        let is_replay = |response: &Response<Bytes>| response.extensions().get::<StepReplayed>().is_some();
        assert_eq!((is_replay(&first), is_replay(&again), bank.count()), (false, true, 1));
    }
}

#[tokio::test]
async fn a_request_that_names_no_step_is_sent_only_where_that_was_said() {
    let request = |method: Method| Request::builder().method(method).uri("/").body(Full::default()).unwrap();
    for (unguarded, get, posted) in
        [(Unguarded::Refuse, false, false), (Unguarded::PassSafeMethods, true, false), (Unguarded::PassAll, true, true)]
    {
        for (method, passes) in [(Method::GET, get), (Method::POST, posted)] {
            let (rig, bank) = (Rig::new(), Bank::default());
            let client = ServiceBuilder::new().layer(held_layer(&rig).unguarded(unguarded)).service(bank.client());
            let got = send(&client, request(method)).await;
            match passes {
                true => assert_eq!(got.unwrap().body(), "transfer 1"),
                false => assert!(matches!(got.unwrap_err(), OutboundError::NoStep)),
            }
            assert_eq!((bank.count(), rig.store.calls(Op::BeginCall)), (usize::from(passes), 0));
        }
    }
}

#[tokio::test]
async fn a_request_whose_body_cannot_be_read_is_never_begun() {
    let rig = Rig::new();
    let held = Runs::of(&rig).begin().await;
    let client = service_fn(async |_: Request<Sent>| Ok::<_, Broken>(Response::new(Full::<Bytes>::default())));
    let client = ServiceBuilder::new().layer(held_layer(&rig).max_request(4)).service(client);
    let broken = post(held.attempt(), "transfer").body(Sent(half("10"))).unwrap();
    assert!(matches!(client.clone().oneshot(broken).await.unwrap_err(), OutboundError::RequestUnreadable(_)));
    let long = post(held.attempt(), "transfer").body(Sent(whole("10 EUR"))).unwrap();
    assert!(matches!(client.oneshot(long).await.unwrap_err(), OutboundError::RequestTooLarge { limit: 4 }));
    assert_eq!(rig.store.calls(Op::BeginCall), 0);
}

/// A request body that can break off.
struct Sent(Body);

impl From<Bytes> for Sent {
    fn from(bytes: Bytes) -> Self {
        Self(whole(bytes))
    }
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(cx)
    }
}

#[tokio::test]
async fn another_request_under_the_same_label_is_refused_and_one_with_a_renewed_login_is_not() {
    let (rig, bank) = (Rig::new(), Bank::default());
    let client = ServiceBuilder::new().layer(held_layer(&rig)).service(bank.client());
    let held = Runs::of(&rig).begin().await;
    send(&client, transfer(held.attempt())).await.unwrap();

    let mut others = [(); 4].map(|()| transfer(held.attempt()));
    *others[0].body_mut() = Full::new(Bytes::from("10 EUR ")); // One byte
    *others[1].uri_mut() = "https://bank.example/transfers?fast".parse().unwrap();
    *others[2].method_mut() = Method::PUT;
    others[3].headers_mut().append("content-type", "text/html".parse().unwrap());
    for other in others {
        let error = step_error(send(&client, other).await);
        assert!(matches!(&error, StepError::RequestChanged(label) if label.as_str() == "transfer"), "{error:?}");
    }
    let mut renewed = transfer(held.attempt());
    renewed.headers_mut().insert("authorization", "Bearer 2".parse().unwrap());
    assert!(send(&client, renewed).await.unwrap().extensions().get::<StepReplayed>().is_some());
    assert_eq!(bank.count(), 1);
}

#[tokio::test]
async fn every_call_of_a_step_carries_its_own_key_and_the_same_bytes() {
    let reset = || Turn::Fail(Broken::Reset.into());
    let (rig, bank) = (Rig::new(), Bank::with([reset(), Turn::Answer(503, whole("")), reset()]));
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(in_header()).unwrap(), thrice()));
    let client = ServiceBuilder::new().layer(layer).service(bank.client());
    let runs = Runs::of(&rig);
    let held = runs.begin().await;
    assert_unknown(send(&client, transfer(held.attempt())).await);
    held.release().await;

    // Another run, another process: the same key, and not the one that somebody put there.
    let held = runs.begin().await;
    let mut with_own = transfer(held.attempt());
    with_own.headers_mut().insert("idempotency-key", "mine".parse().unwrap());
    assert_eq!(send(&client, with_own).await.unwrap().body(), "transfer 4");
    let pay = post(held.attempt(), "pay").body(Full::new(Bytes::from("10 EUR"))).unwrap();
    send(&client, pay).await.unwrap();

    let keys = bank.headers("idempotency-key");
    let label = |name| StepLabel::parse(name).unwrap();
    let of = |name| Some(provider().takes_key(in_header()).unwrap().key(&record_id("k"), &label(name)).to_string());
    assert_eq!(keys[..4], [of("transfer"), of("transfer"), of("transfer"), of("transfer")]);
    assert_eq!(keys[4..], [of("pay")]);
    assert_ne!(of("pay"), of("transfer"));
    assert!(bank.sent.lock().unwrap().iter().all(|(_, _, body)| body == "10 EUR"));
}

#[tokio::test]
async fn no_key_is_sent_when_the_providers_window_is_over() {
    let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Reset.into())]));
    let policy = Policy::reconcile(async |_| Found::DidNotHappen);
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(in_header()).unwrap(), policy));
    let client = ServiceBuilder::new().layer(layer).service(bank.client());
    let runs = Runs::of(&rig);
    let held = runs.begin().await;
    assert_unknown(send(&client, transfer(held.attempt())).await);
    held.release().await;
    rig.clock.advance(2 * DAY);
    let held = runs.begin().await;
    let mut with_own = transfer(held.attempt());
    with_own.headers_mut().insert("idempotency-key", "mine".parse().unwrap());
    send(&client, with_own).await.unwrap();
    let keys = bank.headers("idempotency-key");
    assert!(matches!(keys[..], [Some(_), None]), "{keys:?}");
}

#[tokio::test]
async fn a_key_that_belongs_into_a_field_is_put_there_or_nothing_is_sent() {
    let (rig, bank) = (Rig::new(), Bank::default());
    let provider = provider().takes_key(keys(KeyPlace::Field("reference".to_owned()))).unwrap();
    let layer = OutboundLayer::new(guard(&rig, provider.clone(), Policy::Hold));
    let held = Runs::of(&rig).begin().await;
    let client = ServiceBuilder::new().layer(layer.clone()).service(bank.client());
    let refused = send(&client, transfer(held.attempt())).await.unwrap_err();
    assert!(matches!(refused, OutboundError::KeyNotPlaced));
    assert_eq!((bank.count(), rig.store.calls(Op::BeginCall)), (0, 0));

    let put = |field: &str, key: &idempotency::outbound::StepKey, body: Bytes| {
        Bytes::from([&body[..], format!(" {field}={key}").as_bytes()].concat())
    };
    let client = ServiceBuilder::new().layer(layer.key_field(put)).service(bank.client());
    send(&client, transfer(held.attempt())).await.unwrap();
    let key = provider.key(&record_id("k"), &StepLabel::parse("transfer").unwrap());
    assert_eq!(bank.sent.lock().unwrap()[0].2, format!("10 EUR reference={key}"));
}

#[tokio::test]
async fn only_errors_that_were_said_to_be_certain_count_as_not_sent() {
    let is_certain = |error: &Broken| matches!(error, Broken::Refused);
    for (broken, is_said, certain) in
        [(Broken::Refused, true, true), (Broken::Refused, false, false), (Broken::Reset, true, false)]
    {
        let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(broken.into())]));
        let layer = if is_said { held_layer(&rig).not_sent(is_certain) } else { held_layer(&rig) };
        let client = ServiceBuilder::new().layer(layer).service(bank.client());
        let held = Runs::of(&rig).begin().await;
        let error = send(&client, transfer(held.attempt())).await.unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().is::<Broken>(), "{error:?}");
        match error.step().unwrap() {
            StepError::NotDone(why) => assert_eq!((certain, why.as_str()), (true, "Refused")),
            StepError::OutcomeUnknown { .. } => assert!(!certain),
            other => panic!("{other:?}"),
        }
        let again = send(&client, transfer(held.attempt())).await;
        assert_eq!((again.is_ok(), bank.count()), (certain, if certain { 2 } else { 1 }));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_whole_and_in_time_is_unknown() {
    let stalls = StreamBody::new(stream::iter([Ok(Frame::data(Bytes::from("transf")))]).chain(stream::pending()));
    let turns = [
        Turn::Stall,
        Turn::Answer(200, BodyExt::boxed(stalls)),
        Turn::Answer(200, half("transf")),
        Turn::Answer(502, whole("")),
        Turn::Answer(307, whole("")),
    ];
    for turn in turns {
        let (rig, bank) = (Rig::new(), Bank::with([turn]));
        let client = ServiceBuilder::new().layer(held_layer(&rig)).service(bank.client());
        let held = Runs::of(&rig).begin().await;
        for _ in 0..2 {
            assert_unknown(send(&client, transfer(held.attempt())).await);
        }
        assert_eq!(bank.count(), 1);
    }
}

#[tokio::test]
async fn of_an_answer_that_is_too_long_it_is_known_which_decision_it_was() {
    for (length, is_read, status, expected) in [
        (LONGEST_RESULT, true, 200, Decided::Done),
        (LONGEST_RESULT + 2000, false, 200, Decided::Done),
        (LONGEST_RESULT, true, 402, Decided::Refused),
        (LONGEST_RESULT + 2000, false, 402, Decided::Refused),
    ] {
        let is_not_kept =
            |error: StepError| matches!(error, StepError::ResultNotKept { decided, .. } if decided == expected);
        let (rig, bank) = (Rig::new(), Bank::with([Turn::Answer(status, whole(vec![b'x'; length]))]));
        let client = ServiceBuilder::new().layer(held_layer(&rig).max_response(0)).service(bank.client());
        let held = Runs::of(&rig).begin().await;
        let first = send(&client, transfer(held.attempt())).await;
        match is_read {
            true => assert_eq!(first.unwrap().body().len(), length),
            false => assert!(is_not_kept(step_error(first))),
        }
        let again = send(&client, transfer(held.attempt())).await;
        assert!(is_not_kept(step_error(again)), "with its head it is above the limit");
        assert_eq!(bank.count(), 1);
    }
}

#[tokio::test]
async fn each_call_is_made_by_a_client_that_was_polled_ready() {
    let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Reset.into())]));
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(in_header()).unwrap(), thrice()));
    // It panics when it is called without having been ready.
    let client = ServiceBuilder::new().layer(layer).concurrency_limit(1).service(bank.client());
    let held = Runs::of(&rig).begin().await;
    let response = client.oneshot(transfer(held.attempt())).await.unwrap();
    assert_eq!((collect(response).await.unwrap().body(), bank.count()), (&Bytes::from("transfer 2"), 2));
}

#[tokio::test]
async fn a_request_without_a_step_that_fails_says_whether_its_method_is_safe() {
    for method in [Method::GET, Method::POST] {
        let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Reset.into())]));
        let layer = held_layer(&rig).unguarded(Unguarded::PassAll);
        let client = ServiceBuilder::new().layer(layer).service(bank.client());
        let request = Request::builder().method(method.clone()).uri("/").body(Full::default()).unwrap();
        let error = send(&client, request).await.unwrap_err();
        assert!(matches!(&error, OutboundError::Unguarded { method: of, .. } if *of == method), "{error:?}");
    }
}

/// Ready once, as one whose clones wait for a permit that somebody else has.
struct ReadyOnce(Client, bool);

impl Clone for ReadyOnce {
    fn clone(&self) -> Self {
        Self(self.0.clone(), false)
    }
}

impl tower::Service<Request<Full<Bytes>>> for ReadyOnce {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = <Client as tower::Service<Request<Full<Bytes>>>>::Future;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
        if self.1 { self.0.poll_ready(cx) } else { std::task::Poll::Pending }
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        self.0.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_client_never_becomes_ready_is_not_done() {
    let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Refused.into())]));
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(in_header()).unwrap(), thrice()));
    let layer = layer.not_sent(|error: &Broken| matches!(error, Broken::Refused));
    let client = ServiceBuilder::new().layer(layer).service(ReadyOnce(bank.client(), true));
    let held = Runs::of(&rig).begin().await;
    let error = client.oneshot(transfer(held.attempt())).await.unwrap_err();
    assert!(matches!(&error, OutboundError::Step(StepError::NotDone(why)) if why.contains("ready")), "{error:?}");
    assert_eq!((bank.count(), rig.store.calls(Op::EndCall)), (1, 3));
}

/// Sends again whatever failed, once.
#[derive(Clone)]
struct Again1(bool);

impl<T> tower::retry::Policy<Request<Full<Bytes>>, T, BoxError> for Again1 {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Full<Bytes>>,
        result: &mut Result<T, BoxError>,
    ) -> Option<std::future::Ready<()>> {
        (result.is_err() && std::mem::take(&mut self.0)).then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<Full<Bytes>>) -> Option<Request<Full<Bytes>>> {
        Some(request.clone())
    }
}

/// Why none may be inside: the bank was sent the transfer twice. With a key it knows both for one, and the last error is not taken for
/// the whole story.
#[tokio::test]
async fn a_retry_layer_inside_sends_twice_under_one_key() {
    let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Reset.into()), Turn::Fail(Broken::Refused.into())]));
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(in_header()).unwrap(), Policy::Hold));
    let client = ServiceBuilder::new().layer(layer).retry(Again1(true)).service(bank.client());
    let held = Runs::of(&rig).begin().await;
    let error = client.oneshot(transfer(held.attempt())).await.unwrap_err();
    assert!(matches!(error.step(), Some(StepError::OutcomeUnknown { .. })), "{error:?}");
    let keys = bank.headers("idempotency-key");
    assert_eq!((keys.len(), &keys[0], keys[0].is_some()), (2, &keys[1], true));
}

#[tokio::test]
async fn a_retry_outside_meets_the_step_as_it_is() {
    let (rig, bank) = (Rig::new(), Bank::with([Turn::Fail(Broken::Reset.into())]));
    let client = ServiceBuilder::new().layer(held_layer(&rig)).service(bank.client()).map_err(BoxError::from);
    let client = ServiceBuilder::new().retry(Again1(true)).service(client);
    let held = Runs::of(&rig).begin().await;
    assert!(client.oneshot(transfer(held.attempt())).await.is_err());
    assert_eq!(bank.count(), 1);
}

#[tokio::test]
async fn a_response_that_was_found_later_is_replayed_like_any_other() {
    let reset = || Bank::with([Turn::Fail(Broken::Reset.into())]);
    let found = result_of(&Response::builder().status(201).header("Location", "/7").body(Bytes::from("7")).unwrap());
    for (result, is_response) in [(found, true), (Bytes::from("{}"), false)] {
        let (rig, bank) = (Rig::new(), reset());
        let client = ServiceBuilder::new().layer(held_layer(&rig)).service(bank.client());
        let held = Runs::of(&rig).begin().await;
        assert_unknown(send(&client, transfer(held.attempt())).await);
        rig.clock.advance(Duration::from_secs(20));
        let resolve = ResolveStep {
            id: record_id("k"),
            label: StepLabel::parse("transfer").unwrap(),
            call_seen: 1,
            verdict: StepVerdict::Happened(StepResult::of(result)),
            who: "anna".to_owned(),
            why: "asked the bank".to_owned(),
        };
        assert_eq!(rig.store.resolve_step(&resolve).await.unwrap(), StepResolved::Applied);
        let got = send(&client, transfer(held.attempt())).await;
        match got {
            Ok(response) => {
                assert_eq!((is_response, response.status().as_u16(), response.body()), (true, 201, &Bytes::from("7")));
                assert_eq!(response.headers()["location"], "/7");
            }
            Err(OutboundError::ResultUnreadable { step, decided }) => {
                assert_eq!((is_response, step.as_str(), decided), (false, "transfer", Decided::Done));
            }
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(bank.count(), 1);
    }
}

#[tokio::test]
async fn the_attempts_token_is_forwarded_to_a_service_with_a_fence() {
    let (rig, bank) = (Rig::new(), Bank::default());
    let client = ServiceBuilder::new().layer(held_layer(&rig)).layer(ForwardFencingToken::new()).service(bank.client());
    let held = Runs::of(&rig).begin().await;
    let mut request = transfer(held.attempt());
    let ticket = request.extensions().get::<GuardedStep>().unwrap().ticket(TokenSource::new(7));
    request.extensions_mut().insert(ticket);
    client.oneshot(request).await.unwrap();
    let token = bank.headers("fencing-token").remove(0).unwrap();
    assert!(token.starts_with(&held.attempt().token().to_string()) && token.contains("src=7"), "{token}");
}

/// Its answer is lost once, and the guard calls again under the same key.
#[tokio::test]
async fn a_service_behind_the_inbound_layer_is_a_provider_that_takes_a_key() {
    let rig = Rig::new();
    let ledger = rig.counting(IdempotencyLayer::new(rig.store.clone(), Scope::global()));
    let lost = Arc::new(Mutex::new(false));
    let client = service_fn(move |request: Request<axum::body::Body>| {
        let (ledger, lost) = (ledger.clone(), Arc::clone(&lost));
        async move {
            let response = ledger.oneshot(request).await.unwrap();
            if std::mem::replace(&mut *lost.lock().unwrap(), true) { Ok(response) } else { Err(Broken::Reset) }
        }
    });
    let keys = KeySupport::idempotency_layer(30 * DAY).unwrap();
    let layer = OutboundLayer::new(guard(&rig, provider().takes_key(keys).unwrap(), thrice()));
    let client = ServiceBuilder::new().layer(layer).service(client);
    let held = Runs::of(&rig).begin().await;
    let request = transfer(held.attempt()).map(axum::body::Body::new);
    let response = client.oneshot(request).await.unwrap();
    assert_eq!(
        (response.status(), response.headers()["idempotent-replayed"].as_bytes()),
        (StatusCode::CREATED, b"true".as_slice())
    );
    assert_eq!(rig.runs.count(), 1);
}

#[test]
fn every_error_is_answered() {
    let step = StepLabel::parse("transfer").unwrap();
    let unguarded = |method| OutboundError::Unguarded { method, source: "reset".into() };
    let answered = |error: OutboundError| {
        let refusal = Refusal::from(error);
        (refusal.status().as_u16(), refusal.problem_type(), refusal.retryable())
    };
    let not_done = || StepError::NotDone("refused".to_owned());
    for (error, expected) in [
        (not_done().into(), (503, "upstream-unavailable", true)),
        (OutboundError::Client { step: not_done(), source: "refused".into() }, (503, "upstream-unavailable", true)),
        (OutboundError::NoStep, (503, "upstream-unavailable", true)),
        (unguarded(Method::POST), (409, "outcome-unknown", true)),
        (unguarded(Method::GET), (503, "upstream-unavailable", true)),
        (OutboundError::ResultUnreadable { step, decided: Decided::Done }, (500, "step-result-not-kept", false)),
    ] {
        assert_eq!(answered(error), expected);
    }
}
