//! What must not be told, and what a flood of requests must not take.
//!
//! One marker stands for all that is confidential: it is in keys, scopes, bodies and answers, in what a handler says when it panics, and in
//! what an external API answers. Every path runs, with a log at its most talkative level and a recorder of metrics; the marker must be in neither.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;
#[path = "../../store/core/tests/log/mod.rs"]
mod log;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use common::{DAY, KEY, Rig, TestStore, charge, send};
use http::{HeaderName, HeaderValue, Request, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::outbound::{CallEnd, Guard, Policy, Provider, Step};
use idempotency::{AgeLimit, Fingerprint, InFlight, KeyClass, Recovery, ScopeId, State};
use log::Log;
use metrics_util::debugging::DebuggingRecorder;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tower_idempotency::{
    CurrentAttempt, FencingLayer, IdempotencyLayer, KeyFormat, KeyRequired, Outage, Scope, StreamThrough,
};

const MARKER: &str = "mArKeR-7d1f";

/// The ways in which the marker's bytes could be written.
fn forms() -> [String; 4] {
    let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{:?}", MARKER.as_bytes());
    [MARKER.to_owned(), hex.to_uppercase(), hex, list.trim_matches(['[', ']']).to_owned()]
}

fn scope() -> Scope {
    Scope::from_fn(|_| Some(ScopeId::new([format!("tenant {MARKER}")])))
}

fn layer(rig: &Rig) -> IdempotencyLayer<TestStore> {
    IdempotencyLayer::new(rig.store.clone(), scope())
}

/// A request under a key, told to do this, with a body of its own.
fn request(key: &str, told: &str, body: &str) -> Request<Body> {
    let request = Request::post(format!("/{told}?note={MARKER}")).header(KEY, key).header("x-note", MARKER);
    request.header("Content-Type", "application/json").body(Body::from(format!("{{\"{MARKER}\":\"{body}\"}}"))).unwrap()
}

fn key(name: &str) -> String {
    format!("{MARKER}-{name}")
}

/// An app whose handler does what the path says, with the marker in all that it says.
fn app(rig: &Rig, layer: IdempotencyLayer<TestStore>) -> Router {
    let guard = Guard::new(rig.store.clone(), Provider::new("bank", Duration::from_secs(1)).unwrap(), Policy::Hold);
    let guard = guard.unwrap();
    let handler = async move |CurrentAttempt(attempt): CurrentAttempt, request: Request<Body>| {
        let told = request.uri().path().trim_start_matches('/').to_owned();
        let said = format!("said {MARKER}");
        let location = [("location", format!("/charges/{MARKER}"))];
        let step = Step::new("transfer", Fingerprint::of([MARKER])).unwrap();
        let mut status = StatusCode::CREATED;
        match told.as_str() {
            "panic" => panic!("{MARKER}"),
            "fail" => status = StatusCode::INTERNAL_SERVER_ERROR,
            "refuse" => status = StatusCode::UNPROCESSABLE_ENTITY,
            "sleep" => sleep(Duration::from_secs(20)).await,
            "hang" => std::future::pending().await,
            "done" | "refused" | "unknown" | "unreachable" => {
                let end = match told.as_str() {
                    "done" => CallEnd::Done(Bytes::from(said.clone())),
                    "refused" => CallEnd::Refused(Bytes::from(said.clone())),
                    "unknown" => CallEnd::Unknown("reset".to_owned()),
                    _ => CallEnd::NotDone("connection refused".to_owned()),
                };
                let called = guard.call(&attempt, &step, |_| std::future::ready(end.clone())).await;
                if let Err(error) = called {
                    return Err(tower_idempotency::Refusal::from(error));
                }
            }
            _ => {}
        }
        let streamed = (told == "stream").then_some(axum::Extension(StreamThrough));
        Ok((status, location, streamed, said))
    };
    Router::new().fallback(handler).layer(layer)
}

/// Sends it, and makes sure that the marker reached the client exactly when the handler's answer did.
async fn tell(app: &Router, request: Request<Body>) -> Option<&'static str> {
    let answer = send(app, request).await;
    let problem = answer.problem();
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    // The first answer's Location is kept for whoever asks for an answer that is not.
    if problem.is_some() && problem != Some("response-not-kept") {
        let head = format!("{:?}", answer.headers);
        assert!(forms().iter().all(|form| !body.contains(form) && !head.contains(form)), "{body} {head}");
    }
    problem
}

async fn every_path(rig: &Rig) -> Vec<Option<&'static str>> {
    let mut problems = Vec::new();
    let mut note = |problem| problems.push(problem);
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let app = app(rig, layer(rig).recovery(recovery).max_request(4096).max_response(512));
        let name = |told: &str| key(&format!("{told}-{recovery:?}"));
        for told in ["answer", "panic", "fail", "refuse", "stream", "done", "refused", "unknown", "unreachable"] {
            for body in ["a", "a", "b"] {
                note(tell(&app, request(&name(told), told, body)).await);
            }
        }
        for op in [Op::Claim, Op::Complete, Op::Release, Op::MarkInDoubt, Op::Abandon, Op::BeginCall, Op::EndCall] {
            for fault in [Fault::Fail, Fault::Disconnect, Fault::LoseReply, Fault::StallReply] {
                for told in ["answer", "refuse", "fail", "done"] {
                    rig.store.next(op, fault);
                    note(tell(&app, request(&name(&format!("{told}-{op:?}-{fault:?}")), told, "a")).await);
                    rig.store.heal();
                }
            }
        }
        // In flight; superseded, renewed in vain; and a client that leaves.
        let running = tokio::spawn({
            let (app, request) = (app.clone(), request(&name("sleep"), "sleep", "a"));
            async move { send(&app, request).await }
        });
        sleep(Duration::from_secs(1)).await;
        note(tell(&app, request(&name("sleep"), "sleep", "a")).await);
        rig.store.always(Op::Renew, Fault::Fail);
        rig.clock.advance(DAY);
        sleep(Duration::from_secs(40)).await;
        rig.store.heal();
        running.await.unwrap();
        let left = tokio::time::timeout(Duration::from_secs(1), send(&app, request(&name("hang"), "hang", "a"))).await;
        assert!(left.is_err());
        // What a key must not be, and bodies that are too long or break off.
        for wrong in [format!("{MARKER} x"), format!("{MARKER},x"), format!("\"{MARKER}"), MARKER.repeat(30)] {
            note(tell(&app, request(&wrong, "answer", "a")).await);
        }
        let mut twice = request(&name("twice"), "answer", "a");
        twice.headers_mut().append(KEY, HeaderValue::from_static(MARKER));
        note(tell(&app, twice).await);
        note(tell(&app, request(&name("long"), "answer", &MARKER.repeat(1000))).await);
        let broken = futures_util::stream::iter([Ok(Bytes::from(MARKER)), Err(std::io::Error::other("reset"))]);
        let broken = request(&name("broken"), "answer", "a").map(|_| Body::from_stream(broken));
        note(tell(&app, broken).await);
    }
    rig.clock.advance(2 * DAY);
    let plain = layer(rig);
    note(tell(&app(rig, plain.clone()), request(&key("answer-Hold"), "answer", "a")).await);

    // Other settings.
    let age = AgeLimit { max_age: DAY, drift: Duration::from_secs(60), class: KeyClass::new("uuid7") };
    let of_uuids = plain.clone().key_format(KeyFormat::Uuid7, age).unwrap();
    note(tell(&app(rig, of_uuids.clone()), request(MARKER, "answer", "a")).await);
    let old = "01890a5d-ac96-774b-bcce-b302099a8057";
    note(tell(&app(rig, of_uuids), request(old, "answer", "a")).await);
    let found = plain.clone().key_from_fn(|_, body| Some(String::from_utf8_lossy(body).into_owned()));
    note(tell(&app(rig, found), request("x", "answer", &MARKER.repeat(30))).await);
    let homeless = IdempotencyLayer::new(rig.store.clone(), Scope::header(HeaderName::from_static("x-account")));
    note(tell(&app(rig, homeless), request(&key("homeless"), "answer", "a")).await);
    let required = app(rig, plain.clone().key_required(KeyRequired::Required));
    let mut without = request("x", "answer", "a");
    without.headers_mut().remove(KEY);
    note(tell(&required, without).await);
    rig.store.next(Op::Claim, Fault::Stall);
    let passing = Router::new().fallback(async || MARKER).layer(plain.clone().outage(Outage::Pass));
    note(tell(&passing, request(&key("outage"), "answer", "a")).await);
    let full = Rig::with(0);
    note(tell(&app(&full, layer(&full)), request(&key("full"), "answer", "a")).await);
    let fenced = app(rig, plain.clone()).layer(FencingLayer::new());
    let mut token = request(&key("token"), "answer", "a");
    token.headers_mut().insert("Fencing-Token", HeaderValue::from_static(MARKER));
    note(tell(&fenced, token).await);
    sleep(Duration::from_secs(120)).await;
    problems
}

#[tokio::test(start_paused = true)]
async fn case_97_no_log_line_metric_or_refusal_holds_what_is_confidential() {
    // While there is one subscriber only, a place that another thread's test reaches first is off for all (tracing-core 0.1).
    let (log, _logged) = Log::begin();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counted = metrics::set_default_local_recorder(&recorder);

    let problems = every_path(&Rig::new()).await;
    for reached in [
        "idempotency-key-missing",
        "idempotency-key-invalid",
        "idempotency-scope-missing",
        "idempotency-key-reused",
        "request-in-flight",
        "outcome-unknown",
        "response-not-kept",
        "key-expired",
        "request-too-large",
        "request-unreadable",
        "handler-panicked",
        "store-unavailable",
        "store-full",
        "fencing-token-invalid",
        "upstream-unavailable",
    ] {
        assert!(problems.contains(&Some(reached)), "{reached} was never answered");
    }
    let log = log.text();
    let metrics: Vec<_> = snapshotter.snapshot().into_vec();
    let metrics = format!("{metrics:?}");
    for said in ["the handler panicked", "refused", "could not say whether to run", "not recorded yet", "no decision"] {
        assert!(log.contains(said), "{said} in {log}");
    }
    for counted in
        ["refused_total", "replayed_total", "claims_abandoned_total", "leases_lost_total", "unprotected_total"]
    {
        assert!(metrics.contains(&format!("idempotency_{counted}")), "{counted} in {metrics}");
    }
    for form in forms() {
        let at = log.find(&form).map(|at| &log[at.saturating_sub(200)..log.len().min(at + 200)]);
        assert_eq!(at, None, "{form} in the log");
        assert!(!metrics.contains(&form), "{form} in {metrics}");
    }
}

/// Handlers that run until they are let go, and how many of them run.
#[derive(Clone)]
struct Gate {
    running: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        Self { running: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    fn router(&self) -> Router {
        let gate = self.clone();
        Router::new().fallback(async move || {
            gate.running.fetch_add(1, Ordering::SeqCst);
            let pass = gate.open.acquire().await.unwrap();
            pass.forget();
            gate.running.fetch_sub(1, Ordering::SeqCst);
            "done"
        })
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_flood_of_duplicates_only_so_many_wait() {
    const MOST: usize = 20;
    let (rig, gate) = (Rig::new(), Gate::new());
    let wait = InFlight::Wait(Duration::from_secs(10));
    let app = gate.router().layer(rig.layer().in_flight(wait).max_waiting(MOST));
    let spawn = |key: &'static str| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, charge(key)).await })
    };
    let first = spawn("k1");
    sleep(Duration::from_millis(1)).await;
    let flood: Vec<_> = (0..10 * MOST).map(|_| spawn("k1")).collect();
    sleep(Duration::from_secs(1)).await;
    let (told, waiting): (Vec<_>, Vec<_>) = flood.into_iter().partition(tokio::task::JoinHandle::is_finished);
    assert_eq!(waiting.len(), MOST);
    for told in told {
        let told = told.await.unwrap();
        assert_eq!((told.status, told.problem()), (409, Some("request-in-flight")));
        assert!(told.header("retry-after").is_some(), "it may ask again");
    }
    // Other keys are served meanwhile, and their duplicates are told as well.
    gate.open.add_permits(1);
    assert_eq!(first.await.unwrap().status, 200);
    for waiting in waiting {
        assert!(waiting.await.unwrap().is_replay());
    }
    // And the places are free again.
    let second = spawn("k2");
    sleep(Duration::from_millis(1)).await;
    let duplicate = spawn("k2");
    sleep(Duration::from_secs(1)).await;
    assert!(!duplicate.is_finished());
    gate.open.add_permits(1);
    assert!(duplicate.await.unwrap().is_replay());
    assert_eq!(second.await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_frees_its_place() {
    let (rig, gate) = (Rig::new(), Gate::new());
    let app = gate.router().layer(rig.layer().in_flight(InFlight::Wait(Duration::from_secs(60))).max_waiting(1));
    let spawn = || {
        let app = app.clone();
        tokio::spawn(async move { send(&app, charge("k1")).await })
    };
    let _first = spawn();
    sleep(Duration::from_millis(1)).await;
    for _ in 0..3 {
        let waiter = spawn();
        sleep(Duration::from_secs(1)).await;
        assert!(!waiter.is_finished(), "the place of the one before is free");
        waiter.abort();
        let _ = waiter.await;
    }
}

/// Each client begins and hangs up. What goes on without them is one task for each grant; a limit inside the layer holds them
/// together, a bounded store refuses more, and at the end nothing is left.
#[tokio::test(start_paused = true)]
async fn a_flood_of_clients_that_hang_up_leaves_no_more_than_the_limits_allow() {
    const RUNNING: usize = 7;
    const RECORDS: usize = 50;
    let (rig, gate) = (Rig::with(RECORDS), Gate::new());
    let layer = rig.layer();
    let limit = tower::limit::GlobalConcurrencyLimitLayer::new(RUNNING);
    let app = gate.router().layer(limit).layer(layer.clone());
    for n in 0..4 * RECORDS {
        let app = app.clone();
        let client = tokio::spawn(async move { send(&app, charge(&format!("k{n}"))).await });
        sleep(Duration::from_millis(1)).await;
        client.abort();
        let _ = client.await;
    }
    assert!(gate.running() <= RUNNING, "{} run at once", gate.running());
    // A task, and the mark that keeps a drain waiting for it.
    assert!(layer.engine().tracker().len() <= 2 * RECORDS, "{} tasks", layer.engine().tracker().len());
    gate.open.add_permits(4 * RECORDS);
    assert!(layer.engine().drain(Duration::from_secs(60)).await, "something is left");
    assert_eq!((gate.running(), layer.engine().tracker().len()), (0, 0));
}

/// Whoever asks a store that does not answer leaves a claim that may have been granted, and that is given up when it does.
#[tokio::test(start_paused = true)]
async fn a_flood_while_the_store_is_away_takes_few_tasks_and_holds_no_key() {
    const CLIENTS: usize = 500;
    let rig = Rig::new();
    let layer = rig.layer();
    let app = rig.counting(layer.clone());
    rig.store.always(Op::Claim, Fault::StallReply);
    rig.store.always(Op::Abandon, Fault::Fail);
    for n in 0..CLIENTS {
        assert_eq!(send(&app, charge(&format!("k{n}"))).await.problem(), Some("store-unavailable"));
    }
    assert_eq!(rig.records(), CLIENTS, "each of them was granted");
    assert!(layer.engine().tracker().len() <= 20, "{} tasks", layer.engine().tracker().len());
    rig.store.heal();
    assert!(layer.engine().drain(Duration::from_secs(60)).await, "something is left");
    for n in 0..CLIENTS {
        assert_eq!(rig.state(&format!("k{n}")).await, Some(State::Released));
    }
    assert_eq!(send(&app, charge("k7")).await.text(), "run 1");
}
