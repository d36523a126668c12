//! What one scope can learn of another's keys: nothing. A stranger asks for a key that is somebody else's, in each of its states, and gets
//! to the last byte what it gets for a key that nobody has, after as long and as many questions to the store.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use common::{Answer, DAY, HOUR, Rig, TestStore, charge_of, send};
use http::{HeaderName, HeaderValue, Request, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::{InFlight, Key, RecordId, Recovery, ScopeId, State, Store as _};
use tokio::time::{Instant, sleep};
use tower_idempotency::{IdempotencyLayer, Scope, StreamThrough};

const KEY: &str = "order-1";
const OWNER: &str = "owner";
const STRANGER: &str = "stranger";
/// How long the handler takes that is told to.
const LONG: Duration = Duration::from_secs(20);

/// The states that an owner's key is put into, and how: what the handler is told to do, what happens to the store, and how much later the
/// stranger comes.
struct Case {
    name: &'static str,
    told: &'static str,
    recovery: Recovery,
    fault: Option<(Op, Fault)>,
    later: Duration,
    state: Option<State>,
}

const fn case(name: &'static str, told: &'static str, state: Option<State>) -> Case {
    Case { name, told, recovery: Recovery::Hold, fault: None, later: Duration::ZERO, state }
}

fn cases() -> Vec<Case> {
    let completed = Some(State::Completed);
    let in_doubt = Some(State::InDoubt);
    vec![
        case("in flight", "sleep", Some(State::InFlight)),
        Case { recovery: Recovery::Rerun, ..case("in flight under rerun", "sleep", Some(State::InFlight)) },
        Case { later: HOUR, ..case("its lease is over", "hang", in_doubt) },
        Case { later: HOUR, recovery: Recovery::Rerun, ..case("it can be taken over", "hang", Some(State::InFlight)) },
        case("completed", "answer", completed),
        case("declined", "decline", completed),
        case("not kept", "stream", Some(State::Tombstone)),
        Case { later: DAY, ..case("a tombstone", "answer", Some(State::Tombstone)) },
        case("in doubt with an answer", "fail", in_doubt),
        case("in doubt without", "panic", in_doubt),
        case("released", "refuse", Some(State::Released)),
        Case { later: 31 * DAY, ..case("forgotten", "answer", None) },
        Case {
            fault: Some((Op::Claim, Fault::LoseReply)),
            ..case("granted to nobody", "answer", Some(State::Released))
        },
        Case { fault: Some((Op::Complete, Fault::Fail)), ..case("recorded late", "answer", completed) },
    ]
}

/// Does what the header says, whoever asks, and always the same.
async fn handler(request: Request<Body>) -> axum::response::Response {
    match request.headers()["x-told"].to_str().unwrap() {
        "sleep" => sleep(LONG).await,
        "hang" => std::future::pending().await,
        "panic" => panic!("told to"),
        "stream" => return (axum::Extension(StreamThrough), "streamed").into_response(),
        "decline" => return (StatusCode::PAYMENT_REQUIRED, "declined").into_response(),
        "fail" => return (StatusCode::INTERNAL_SERVER_ERROR, "failed").into_response(),
        "refuse" => return (StatusCode::UNPROCESSABLE_ENTITY, "refused").into_response(),
        _ => {}
    }
    (StatusCode::CREATED, [("location", "/charges/1")], "charged").into_response()
}

fn of(account: &str, told: &str, amount: u32) -> Request<Body> {
    let mut request = charge_of(KEY, amount);
    request.headers_mut().insert("x-account", HeaderValue::from_str(account).unwrap());
    request.headers_mut().insert("x-told", HeaderValue::from_str(told).unwrap());
    request
}

fn app(rig: &Rig, case: &Case, in_flight: InFlight) -> Router {
    let scope = Scope::header(HeaderName::from_static("x-account"));
    let layer: IdempotencyLayer<TestStore> = IdempotencyLayer::new(rig.store.clone(), scope);
    Router::new().fallback(handler).layer(layer.recovery(case.recovery).in_flight(in_flight))
}

/// Brings the owner's key into the case's state.
async fn own(rig: &Rig, app: &Router, case: &Case) {
    if let Some((op, fault)) = case.fault {
        rig.store.next(op, fault);
    }
    let owned = tokio::spawn({
        let app = app.clone();
        let request = of(OWNER, case.told, 10);
        async move { send(&app, request).await }
    });
    // Until it is answered or stays in its handler, and what goes on in the background is done.
    sleep(Duration::from_secs(8)).await;
    rig.clock.advance(case.later);
    assert_eq!(owned.is_finished(), !matches!(case.told, "sleep" | "hang"), "{}", case.name);
}

async fn state_of(rig: &Rig, account: &str) -> Option<State> {
    let id = RecordId::new(&ScopeId::new([account]), &Key::parse(KEY).unwrap());
    rig.store.inner().inspect(&id).await.unwrap().map(|entry| entry.state)
}

/// All that a stranger can see of an answer, and how long it took and how often the store was asked.
#[derive(Debug, PartialEq)]
struct Seen {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    took: Duration,
    asked: Vec<usize>,
}

async fn see(rig: &Rig, app: &Router, request: Request<Body>) -> Seen {
    let calls = || [Op::Claim, Op::Complete, Op::Release, Op::Abandon].map(|op| rig.store.calls(op));
    let (before, since) = (calls(), Instant::now());
    let Answer { status, headers, body, .. } = send(app, request).await;
    let took = since.elapsed();
    let mut headers: Vec<_> = headers.iter().map(|(n, v)| (n.to_string(), v.as_bytes().to_vec())).collect();
    headers.sort();
    let asked = calls().iter().zip(before).map(|(now, then)| now - then).collect();
    Seen { status, headers, body: body.to_vec(), took, asked }
}

/// A stranger's first request under the key, its retry, and its other request.
async fn visit(rig: &Rig, app: &Router) -> [Seen; 3] {
    [
        see(rig, app, of(STRANGER, "answer", 10)).await,
        see(rig, app, of(STRANGER, "answer", 10)).await,
        see(rig, app, of(STRANGER, "answer", 99)).await,
    ]
}

#[tokio::test(start_paused = true)]
async fn a_stranger_sees_the_same_in_every_state_of_somebody_elses_key() {
    for in_flight in [InFlight::Reject, InFlight::Wait(Duration::from_secs(5))] {
        for case in cases() {
            let alone = Rig::new();
            let expected = visit(&alone, &app(&alone, &case, in_flight)).await;
            assert_eq!((expected[0].status, expected[2].status), (201, 422));

            let rig = Rig::new();
            let app = app(&rig, &case, in_flight);
            own(&rig, &app, &case).await;
            let state = state_of(&rig, OWNER).await;
            assert_eq!(state, case.state, "{}", case.name);
            assert_eq!(visit(&rig, &app).await, expected, "{}, {in_flight:?}", case.name);
            assert_eq!(state_of(&rig, OWNER).await, state, "{}: the owner's record is as it was", case.name);
        }
    }
}

/// The proof that the test above can fail.
#[tokio::test(start_paused = true)]
async fn who_shares_the_scope_sees_it_in_every_state_that_keeps_something() {
    for case in cases() {
        let alone = Rig::new();
        let expected = visit(&alone, &app(&alone, &case, InFlight::Reject)).await;
        let rig = Rig::new();
        let app = app(&rig, &case, InFlight::Reject);
        own(&rig, &app, &case).await;
        let first = see(&rig, &app, of(OWNER, "answer", 10)).await;
        let keeps_nothing = matches!(case.state, None | Some(State::Released)) || case.name == "it can be taken over";
        assert_eq!(first == expected[0], keeps_nothing, "{}: {first:?}", case.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_want_of_a_scope_tells_nothing_of_a_key() {
    let rig = Rig::new();
    let app = app(&rig, &cases()[0], InFlight::Reject);
    let anonymous = || {
        let mut request = of(OWNER, "answer", 10);
        request.headers_mut().remove("x-account");
        request
    };
    let before = see(&rig, &app, anonymous()).await;
    assert_eq!(before.status, 400);
    send(&app, of(OWNER, "answer", 10)).await;
    assert_eq!(see(&rig, &app, anonymous()).await, before);
}
