//! Which outcomes are recorded: what a duplicate meets after each kind of answer, and after none.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;
#[path = "../../store/core/tests/log/mod.rs"]
mod log;

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use common::{Rig, TestStore, charge, send};
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Request, StatusCode};
use http_body::Frame;
use idempotency::faults::{Fault, Op};
use idempotency::{Recovery, State};
use log::Log;
use tokio::sync::Notify;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_idempotency::{CurrentAttempt, IdempotencyLayer, RecordPolicy, Refusal, Verdict};

/// What a duplicate meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Duplicate {
    /// It runs: the key was free again.
    Runs,
    /// It gets the first answer, which is on record.
    Replay,
    /// It gets the first answer, and nobody knows whether its effect happened.
    ReplayInDoubt,
    /// It is told that nobody knows.
    Unknown,
}

use Duplicate::{Replay, ReplayInDoubt, Runs, Unknown};

const RECOVERIES: [Recovery; 2] = [Recovery::Hold, Recovery::Rerun];

/// Sends a request and its duplicate to `app`, whose answers differ from run to run, and tells what the duplicate met.
async fn duplicate<S>(rig: &Rig, app: &S, key: &str) -> Duplicate
where
    S: Service<Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone,
{
    let runs = rig.runs.count();
    let first = send(app, charge(key)).await;
    assert_eq!(rig.runs.count(), runs + 1, "{key}");
    assert!(!first.is_replay(), "{key}");
    let state = rig.state(key).await;
    let second = send(app, charge(key)).await;
    if rig.runs.count() == runs + 2 {
        assert!(!second.is_replay(), "{key}");
        assert_eq!(state, Some(State::Released), "{key}");
        return Runs;
    }
    assert_eq!(rig.runs.count(), runs + 1, "{key}");
    if second.problem() == Some("outcome-unknown") {
        assert_eq!((second.status, second.header("Retry-After")), (409, None), "{key}");
        assert_eq!(state, Some(State::InDoubt), "{key}");
        return Unknown;
    }
    assert!(second.is_replay(), "{key}");
    assert_eq!((second.status, &second.body), (first.status, &first.body), "{key}");
    match state {
        Some(State::Completed) => Replay,
        Some(State::InDoubt) => ReplayInDoubt,
        state => panic!("{key} is {state:?}"),
    }
}

/// An app whose every answer has this status, and another body for each run.
fn answering(rig: &Rig, layer: IdempotencyLayer<TestStore>, status: u16, verdict: Option<Verdict>) -> Router {
    rig.app(layer, move |run| {
        let mut response = (StatusCode::from_u16(status).unwrap(), format!("run {run}")).into_response();
        if let Some(verdict) = verdict {
            response.extensions_mut().insert(verdict);
        }
        response
    })
}

/// The table, row by row.
fn by_the_table(status: u16, recovery: Recovery) -> Duplicate {
    match (status, recovery) {
        (200..=303 | 305 | 306 | 309..=399, _) => Replay,
        (304 | 307 | 308, _) => Runs,
        (400 | 401 | 403 | 404 | 405 | 406 | 411 | 413 | 414 | 415 | 416 | 422 | 428 | 429, _) => Runs,
        (408 | 425 | 499 | 500.., Recovery::Hold) => ReplayInDoubt,
        (408 | 425 | 499 | 500.., Recovery::Rerun) => Runs,
        (402 | 407 | 409 | 410 | 412 | 417..=498, _) => Replay,
        (..200, _) => unreachable!("no final status"),
    }
}

async fn check_every_status(policy: RecordPolicy, expected: impl Fn(u16, Recovery) -> Duplicate) {
    for recovery in RECOVERIES {
        let rig = Rig::new();
        for status in 200..=599 {
            let app = answering(&rig, rig.layer().recovery(recovery).record(policy.clone()), status, None);
            let met = duplicate(&rig, &app, &format!("{status}")).await;
            assert_eq!(met, expected(status, recovery), "{status} under {recovery:?}");
        }
    }
}

#[tokio::test]
async fn every_status_is_recorded_as_the_table_says() {
    check_every_status(RecordPolicy::default(), by_the_table).await;
}

#[tokio::test]
async fn stripes_policy_records_every_status() {
    check_every_status(RecordPolicy::Stripe, |_, _| Replay).await;
}

#[tokio::test]
async fn success_only_runs_again_after_all_else() {
    check_every_status(RecordPolicy::SuccessOnly, |status, _| if status < 300 { Replay } else { Runs }).await;
}

#[tokio::test]
async fn a_policy_of_ones_own_decides_by_status_and_recovery() {
    let policy = RecordPolicy::from_fn(|status, recovery| match (status.as_u16(), recovery) {
        (418, Recovery::Rerun) | (500, _) => Verdict::Record,
        (418, Recovery::Hold) => Verdict::InDoubt,
        _ => Verdict::Release,
    });
    for (status, recovery, expected) in [
        (418, Recovery::Rerun, Replay),
        (418, Recovery::Hold, ReplayInDoubt),
        (500, Recovery::Hold, Replay),
        (200, Recovery::Hold, Runs),
    ] {
        let rig = Rig::new();
        let app = answering(&rig, rig.layer().recovery(recovery).record(policy.clone()), status, None);
        assert_eq!(duplicate(&rig, &app, "k1").await, expected, "{status} under {recovery:?}");
    }
}

#[tokio::test]
async fn the_handlers_verdict_overrules_every_policy() {
    for recovery in RECOVERIES {
        for policy in [RecordPolicy::Default, RecordPolicy::Stripe, RecordPolicy::SuccessOnly] {
            for status in [200, 404, 402, 408, 500] {
                for (verdict, expected) in
                    [(Verdict::Record, Replay), (Verdict::Release, Runs), (Verdict::InDoubt, ReplayInDoubt)]
                {
                    let rig = Rig::new();
                    let layer = rig.layer().recovery(recovery).record(policy.clone());
                    let app = answering(&rig, layer, status, Some(verdict));
                    let met = duplicate(&rig, &app, "k1").await;
                    assert_eq!(met, expected, "{verdict:?} on {status} under {recovery:?} and {policy:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_verdict_goes_no_further_than_the_layer() {
    let rig = Rig::new();
    for verdict in [Verdict::Record, Verdict::Release, Verdict::InDoubt] {
        let app = answering(&rig, rig.layer(), 200, Some(verdict));
        let answer = send(&app, charge(&format!("{verdict:?}"))).await;
        assert_eq!(answer.extensions.get::<Verdict>(), None);
    }
}

#[tokio::test]
async fn what_an_answer_says_of_caching_decides_nothing() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| ([(CACHE_CONTROL, "no-store, private")], format!("run {run}")));
    assert_eq!(duplicate(&rig, &app, "k1").await, Replay);
    let again = send(&app, charge("k1")).await;
    assert_eq!(again.header("Cache-Control"), Some("no-store, private"), "and it is the handler's own");
}

#[tokio::test]
async fn an_answer_in_doubt_is_replayed_with_its_mark_until_it_is_resolved() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| {
        (StatusCode::BAD_GATEWAY, [("x-provider", "timed out")], format!("run {run}")).into_response()
    });
    assert_eq!(send(&app, charge("k1")).await.status, 502);
    rig.clock.advance(20 * common::DAY);
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, again.text(), again.header("x-provider")), (502, "run 1", Some("timed out")));
    assert!(again.is_replay());
    assert_eq!(again.extensions.get::<tower_idempotency::Replayed>(), Some(&tower_idempotency::Replayed));
    assert_eq!(rig.runs.count(), 1);
}

/// An app whose handler panics: before or after its first wait.
fn panicking(rig: &Rig, layer: IdempotencyLayer<TestStore>, waits: bool) -> Router {
    let runs = rig.runs.clone();
    let handler = move || {
        let runs = runs.clone();
        async move {
            if waits {
                tokio::task::yield_now().await;
            }
            let run = runs.begin();
            assert_eq!(run, 0, "run {run} fails");
            StatusCode::OK
        }
    };
    Router::new().fallback(handler).layer(layer)
}

#[tokio::test]
async fn a_panic_is_500_and_in_doubt_or_free() {
    for (recovery, expected) in [(Recovery::Hold, Unknown), (Recovery::Rerun, Runs)] {
        for waits in [false, true] {
            let rig = Rig::new();
            let app = panicking(&rig, rig.layer().recovery(recovery), waits);
            let first = send(&app, charge("k0")).await;
            assert_eq!((first.status, first.problem()), (500, Some("handler-panicked")));
            assert_eq!(first.header("Content-Type"), Some("application/problem+json"));
            assert!(!first.text().contains("run 1"), "what it said is for the log: {}", first.text());
            assert_eq!(duplicate(&rig, &app, "k1").await, expected, "{recovery:?}");
        }
    }
}

#[tokio::test]
async fn a_service_that_panics_when_it_is_called_is_no_different() {
    for (recovery, expected) in [(Recovery::Hold, Unknown), (Recovery::Rerun, Runs)] {
        let rig = Rig::new();
        let runs = rig.runs.clone();
        let inner = service_fn(move |_: Request<Body>| -> std::future::Ready<Result<Response, Infallible>> {
            panic!("run {}", runs.begin())
        });
        let app = rig.layer().recovery(recovery).layer(inner).map_response(|r| r.map(Body::new));
        assert_eq!(duplicate(&rig, &app, "k1").await, expected);
    }
}

#[tokio::test]
async fn a_panic_after_somebody_took_over_is_answered_from_the_record() {
    let rig = Rig::new();
    let (runs, gate) = (rig.runs.clone(), Arc::new(Notify::new()));
    let told = Arc::clone(&gate);
    let handler = async move || {
        let told = told.notified();
        let run = runs.begin();
        if run == 1 {
            told.await;
            panic!("too late");
        }
        (StatusCode::CREATED, format!("run {run}"))
    };
    let app = Router::new().fallback(handler).layer(rig.layer().recovery(Recovery::Rerun));
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, charge("k1")).await }
    });
    while rig.runs.count() == 0 {
        assert!(!first.is_finished(), "it never ran");
        tokio::task::yield_now().await;
    }
    rig.clock.advance(Duration::from_secs(30));
    assert_eq!(send(&app, charge("k1")).await.text(), "run 2");
    gate.notify_waiters();
    let first = first.await.unwrap();
    assert_eq!((first.status, first.text(), first.is_replay()), (201, "run 2", true), "one key, one answer");
}

/// An error of an inner service's own.
#[derive(Debug, PartialEq, Eq)]
struct Broken(usize);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broken")
    }
}

#[tokio::test]
async fn an_inner_services_error_is_passed_on_and_is_in_doubt_or_free() {
    for (recovery, unknown) in [(Recovery::Hold, true), (Recovery::Rerun, false)] {
        let rig = Rig::new();
        let runs = rig.runs.clone();
        let inner = service_fn(move |_: Request<Body>| {
            let run = runs.begin();
            async move {
                tokio::task::yield_now().await;
                Err::<http::Response<Body>, _>(Broken(run))
            }
        });
        let app = rig.layer().recovery(recovery).layer(inner);
        assert_eq!(app.clone().oneshot(charge("k1")).await.unwrap_err(), Broken(1), "the type is the inner service's");
        if unknown {
            assert_eq!(rig.state("k1").await, Some(State::InDoubt));
            let answer = app.clone().oneshot(charge("k1")).await.unwrap();
            assert_eq!(answer.extensions().get::<Refusal>().unwrap().problem_type(), "outcome-unknown");
        } else {
            assert_eq!(rig.state("k1").await, Some(State::Released));
            assert_eq!(app.clone().oneshot(charge("k1")).await.unwrap_err(), Broken(2));
        }
        let keyless = Request::post("/charge").body(Body::empty()).unwrap();
        assert!(app.oneshot(keyless).await.is_err());
    }
}

/// A service that is not ready.
#[derive(Clone)]
struct NeverReady;

impl Service<Request<Body>> for NeverReady {
    type Response = http::Response<Body>;
    type Error = Broken;
    type Future = std::future::Ready<Result<http::Response<Body>, Broken>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Err(Broken(0)))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        panic!("it was called")
    }
}

#[tokio::test]
async fn a_service_that_is_not_ready_costs_no_claim() {
    let rig = Rig::new();
    let app = rig.layer().layer(NeverReady);
    assert_eq!(app.oneshot(charge("k1")).await.unwrap_err(), Broken(0));
    assert_eq!(rig.store.all_calls(), 0);
}

/// A body that panics after its first chunk.
struct PanickingBody(bool);

impl http_body::Body for PanickingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        assert!(!std::mem::replace(&mut self.0, true), "the body broke");
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part")))))
    }
}

#[tokio::test]
async fn a_body_that_panics_while_it_is_read_is_500_and_in_doubt_or_free() {
    for (recovery, expected) in [(Recovery::Hold, Unknown), (Recovery::Rerun, Runs)] {
        let rig = Rig::new();
        let app = rig.app(rig.layer().recovery(recovery), |_| Response::new(Body::new(PanickingBody(false))));
        let first = send(&app, charge("k0")).await;
        assert_eq!((first.status, first.problem()), (500, Some("handler-panicked")));
        assert_eq!(duplicate(&rig, &app, "k1").await, expected, "{recovery:?}");
    }
}

#[tokio::test]
async fn a_policy_that_panics_is_not_asked_again_by_a_task() {
    static RESUMED: AtomicBool = AtomicBool::new(false);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<&str>().copied().unwrap_or_default();
        RESUMED.fetch_or(text.contains("resumed after panicking"), Ordering::SeqCst);
        usual(panic);
    }));
    let rig = Rig::new();
    let layer = rig.layer().record(RecordPolicy::from_fn(|status, _| panic!("no idea of {status}")));
    let app = rig.counting(layer.clone());
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, charge("k1")).await }
    });
    assert!(first.await.unwrap_err().is_panic(), "a bug of the service's own is not hidden");
    assert!(layer.engine().drain(Duration::from_secs(5)).await);
    assert!(!RESUMED.load(Ordering::SeqCst));
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("request-in-flight"), "until its lease ends");
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn the_recovery_that_counts_is_the_records_own() {
    let rig = Rig::new();
    // Begun under Rerun and released; a node that is set to Hold runs it next.
    let rerun = answering(&rig, rig.layer().recovery(Recovery::Rerun), 500, None);
    let hold = answering(&rig, rig.layer().recovery(Recovery::Hold), 500, None);
    assert_eq!(send(&rerun, charge("k1")).await.text(), "run 1");
    assert_eq!(send(&hold, charge("k1")).await.text(), "run 2");
    assert_eq!(rig.state("k1").await, Some(State::Released), "it stays under Rerun");
}

#[tokio::test]
async fn attempts_are_numbered_and_their_tokens_grow() {
    let rig = Rig::new();
    let seen = async |CurrentAttempt(attempt): CurrentAttempt| {
        (StatusCode::TOO_MANY_REQUESTS, format!("{} {}", attempt.number(), attempt.token().get()))
    };
    let app = Router::new().fallback(seen).layer(rig.layer());
    let mut last = 0;
    for number in 1..=3 {
        let answer = send(&app, charge("k1")).await;
        let (n, token) = answer.text().split_once(' ').unwrap();
        assert_eq!(n, number.to_string());
        let token: u64 = token.parse().unwrap();
        assert!(token > last);
        last = token;
    }
}

#[tokio::test]
async fn case_97_no_debug_text_holds_a_key_or_a_scope() {
    let rig = Rig::new();
    let scope = tower_idempotency::Scope::from_fn(|_| Some(idempotency::ScopeId::new(["secret-tenant"])));
    let layer = IdempotencyLayer::new(rig.store.clone(), scope);
    let debug = async |CurrentAttempt(attempt): CurrentAttempt| {
        format!("{attempt:?} {:?} {:?} {:?}", attempt.key(), attempt.holder(), CurrentAttempt(attempt.clone()))
    };
    let app = Router::new().fallback(debug).layer(layer.clone());
    let shown = send(&app, charge("secret-key")).await.text().to_owned();
    let scope = idempotency::ScopeId::new(["secret-tenant"]);
    let key = idempotency::Key::parse("secret-key").unwrap();
    let operation = idempotency::Operation::new(scope.clone(), key, idempotency::Fingerprint::of(["secret-body"]));
    let page = idempotency::Store::list(&rig.store, &idempotency::List::default()).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    for text in [shown, format!("{scope:?} {operation:?} {page:?} {layer:?} {:?}", rig.store.inner())] {
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn case_97_no_log_line_holds_a_key_a_scope_or_a_body() {
    let (log, _logged) = Log::begin();
    let rig = Rig::new();
    let scope = tower_idempotency::Scope::from_fn(|_| Some(idempotency::ScopeId::new(["secret-tenant"])));
    let app = rig.app(IdempotencyLayer::new(rig.store.clone(), scope), |run| match run {
        1 => "secret-answer",
        2 => panic!("run 2"),
        _ => "another",
    });
    for key in ["secret-1", "secret-1", "secret-2", "secret-2", "secret-3,secret-4"] {
        send(&app, charge(key)).await;
    }
    send(&app, common::charge_of("secret-1", 99)).await;
    for (op, key) in [(Op::Claim, "secret-5"), (Op::Complete, "secret-6")] {
        rig.store.next(op, Fault::Fail);
        send(&app, charge(key)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lines = log.text();
    for said in ["the handler panicked", "refused", "could not say whether to run", "not recorded yet"] {
        assert!(lines.contains(said), "{said} in {lines}");
    }
    assert!(!lines.contains("secret"), "{lines}");
}

#[tokio::test]
async fn case_97_a_body_is_gone_when_its_window_is_over() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| "a token that nobody should find");
    send(&app, charge("k1")).await;
    let full = rig.store.inner().bytes();
    rig.clock.advance(common::DAY);
    idempotency::Store::sweep(&rig.store, 100).await.unwrap();
    assert_eq!(rig.state("k1").await, Some(State::Tombstone));
    assert!(rig.store.inner().bytes() + 30 < full, "the payload is dropped, not only hidden");
    rig.clock.advance(30 * common::DAY);
    idempotency::Store::sweep(&rig.store, 100).await.unwrap();
    assert_eq!(rig.records(), 0);
}

#[tokio::test]
async fn extensions_that_the_handler_left_reach_the_layers_outside() {
    let rig = Rig::new();
    let app =
        rig.app(rig.layer(), |_| (axum::Extension(42_u8), HeaderValue::from_static("x").to_str().unwrap().to_owned()));
    assert_eq!(send(&app, charge("k1")).await.extensions.get(), Some(&42_u8));
    assert_eq!(send(&app, charge("k1")).await.extensions.get::<u8>(), None, "a replay has none of them");
}
