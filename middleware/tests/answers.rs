//! What is answered without running the handler: every row of the table, as clients and outer layers see it.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use bytes::Bytes;
use common::{Answer, DAY, HOUR, KEY, Rig, START, TestStore, charge, charge_of, record_id, send};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body::{Frame, SizeHint};
use http_body_util::Limited;
use idempotency::faults::{Fault, Op};
use idempotency::{AgeLimit, InFlight, KeyClass, Lease, Recovery, State, Store as _, Timestamp, Windows};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_idempotency::{
    BodyMode, FingerprintRule, IdempotencyLayer, KeyFormat, KeyRequired, RecordPolicy, Refusal, Responder, Scope,
    Verdict,
};

/// What a row of the table says about `Retry-After`.
#[derive(Clone, Debug)]
enum Retry {
    Never,
    After(RangeInclusive<u64>),
}

const SOON: Retry = Retry::After(1..=3);

/// Asserts all that is common to every row.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, kind: &str, retry: Retry) {
    assert_eq!((answer.status, answer.problem()), (status, Some(kind)), "{answer:?}");
    assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
    assert_eq!(answer.header("Cache-Control"), Some("no-store"));
    let body = answer.json();
    assert_eq!(body["type"], format!("urn:tower-idempotency:problem:{kind}"));
    assert_eq!(body["status"], status);
    for member in ["title", "detail"] {
        assert!(!body[member].as_str().unwrap().is_empty(), "{member}");
    }
    let carries = answer.header("Retry-After").map(|text| text.parse::<u64>().unwrap());
    match retry {
        Retry::Never => assert_eq!(carries, None),
        Retry::After(range) => assert!(carries.is_some_and(|seconds| range.contains(&seconds)), "{carries:?}"),
    }
    assert_eq!(body["retryable"], carries.is_some());
    let reason = answer.extensions.get::<Refusal>().unwrap();
    assert_eq!(reason.status(), status);
    assert_eq!(reason.retryable(), carries.is_some());
    assert!(!answer.is_replay());
}

/// A gate that the handlers of one app wait at.
#[derive(Clone, Default)]
struct Gate(Arc<Notify>);

impl Gate {
    fn open(&self) {
        self.0.notify_waiters();
    }

    /// An app whose handler waits here.
    fn app(&self, rig: &Rig, layer: IdempotencyLayer<TestStore>) -> Router {
        let (gate, runs) = (self.clone(), rig.runs.clone());
        let handler = async move || {
            // Told to wait before it counts, so that whoever sees the count may open.
            let opened = gate.0.notified();
            let run = runs.begin();
            opened.await;
            (StatusCode::CREATED, format!("run {run}"))
        };
        Router::new().fallback(handler).layer(layer)
    }
}

/// Sends a request that stays in its handler.
async fn begin(rig: &Rig, app: &Router, request: Request<Body>) -> tokio::task::JoinHandle<Answer> {
    let runs = rig.runs.count();
    let app = app.clone();
    let first = tokio::spawn(async move { send(&app, request).await });
    while rig.runs.count() == runs {
        assert!(!first.is_finished(), "it never ran");
        tokio::task::yield_now().await;
    }
    first
}

fn panicking(rig: &Rig, layer: IdempotencyLayer<TestStore>) -> Router {
    rig.app(layer, |run| -> StatusCode { panic!("run {run}") })
}

#[tokio::test]
async fn a_required_key_that_is_missing_is_400() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().key_required(KeyRequired::Required));
    let answer = send(&app, Request::post("/charge").body(Body::empty()).unwrap()).await;
    assert_refused(&answer, 400, "idempotency-key-missing", Retry::Never);
    assert_eq!(rig.runs.count(), 0);
}

#[tokio::test]
async fn an_invalid_key_is_400_and_names_the_rule() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for (key, rule) in [
        ("a,b", "list"),
        ("a b", "must be quoted"),
        ("\"a", "structured-field string"),
        ("\"\"", "empty"),
        (&"k".repeat(256), "longer than 255"),
    ] {
        let answer = send(&app, charge(key)).await;
        assert_refused(&answer, 400, "idempotency-key-invalid", Retry::Never);
        assert!(answer.json()["detail"].as_str().unwrap().contains(rule), "{}", answer.text());
    }
    let mut twice = charge("a");
    twice.headers_mut().append(KEY, HeaderValue::from_static("a"));
    let answer = send(&app, twice).await;
    assert_refused(&answer, 400, "idempotency-key-invalid", Retry::Never);
    assert!(answer.text().contains("more than once"));
    assert_eq!(rig.runs.count(), 0);
}

#[tokio::test]
async fn a_scope_that_a_header_does_not_tell_is_400() {
    let rig = Rig::new();
    let scope = Scope::header(HeaderName::from_static("x-account"));
    let app = rig.counting(IdempotencyLayer::new(rig.store.clone(), scope));
    let with = |accounts: &[&str]| {
        let mut request = charge("k1");
        for account in accounts {
            request.headers_mut().append("x-account", HeaderValue::from_str(account).unwrap());
        }
        request
    };
    for accounts in [&[][..], &[""], &["a", "b"], &["a", "a"]] {
        assert_refused(&send(&app, with(accounts)).await, 400, "idempotency-scope-missing", Retry::Never);
    }
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0), "there is no bucket for the anonymous");
    assert_eq!(send(&app, with(&["a"])).await.status, 201);
    let keyless = Request::post("/charge").body(Body::empty()).unwrap();
    assert_eq!(send(&app, keyless).await.status, 201, "without a key no scope is needed");
}

#[tokio::test]
async fn a_scope_that_our_own_stack_does_not_tell_is_500() {
    let rig = Rig::new();
    let app = rig.counting(IdempotencyLayer::new(rig.store.clone(), Scope::from_fn(|_| None)));
    let answer = send(&app, charge("k1")).await;
    assert_refused(&answer, 500, "idempotency-scope-missing", Retry::Never);
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));
}

#[tokio::test]
async fn case_01_a_finished_duplicate_gets_the_answer_and_one_in_flight_is_409() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer());
    let first = begin(&rig, &app, charge("k1")).await;
    assert_refused(&send(&app, charge("k1")).await, 409, "request-in-flight", SOON);
    gate.open();
    let first = first.await.unwrap();
    assert_eq!((first.status, first.text(), first.is_replay()), (201, "run 1", false));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (201, "run 1", true));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn case_02_twenty_duplicates_at_once_get_no_5xx() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer());
    let first = begin(&rig, &app, charge("k1")).await;
    let losers = futures_util::future::join_all((0..20).map(|_| send(&app, charge("k1")))).await;
    for loser in &losers {
        assert_refused(loser, 409, "request-in-flight", SOON);
    }
    gate.open();
    assert_eq!(first.await.unwrap().status, 201);
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_02_of_many_at_once_one_runs() {
    for round in 0..20 {
        let rig = Rig::new();
        let app = rig.counting(rig.layer());
        let key = format!("k{round}");
        let requests = (0..30).map(|_| {
            let (app, request) = (app.clone(), charge(&key));
            tokio::spawn(async move { send(&app, request).await })
        });
        let answers: Vec<_> = futures_util::future::join_all(requests).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(rig.runs.count(), 1);
        let first = |answer: &&Answer| answer.status == 201 && !answer.is_replay();
        assert_eq!(answers.iter().filter(first).count(), 1);
        for answer in answers.iter().filter(|answer| !first(answer)) {
            match answer.status {
                201 => assert_eq!(answer.text(), "run 1"),
                _ => assert_refused(answer, 409, "request-in-flight", SOON),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_may_be_made_to_wait_for_the_answer_within_a_bound() {
    let rig = Rig::new();
    let runs = rig.runs.clone();
    let slow = async move || {
        let run = runs.begin();
        tokio::time::sleep(Duration::from_secs(8)).await;
        (StatusCode::CREATED, format!("run {run}"))
    };
    let layer = rig.layer().in_flight(InFlight::Wait(Duration::from_secs(5)));
    let app = Router::new().fallback(slow).layer(layer);
    let first = begin(&rig, &app, charge("k1")).await;
    let sent = tokio::time::Instant::now();
    let impatient = send(&app, charge("k1")).await;
    assert_refused(&impatient, 409, "request-in-flight", SOON);
    assert!((5.0..5.1).contains(&sent.elapsed().as_secs_f64()), "{:?}", sent.elapsed());
    assert_refused(&send(&app, charge_of("k1", 99)).await, 422, "idempotency-key-reused", Retry::Never);
    let patient = send(&app, charge("k1")).await;
    assert_eq!((patient.text(), patient.is_replay()), ("run 1", true));
    assert!((8.0..8.3).contains(&sent.elapsed().as_secs_f64()), "{:?}", sent.elapsed());
    assert_eq!(first.await.unwrap().text(), "run 1");
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn retry_after_is_the_leases_time_left_cut_to_two_seconds_and_jitter() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer().lease(Lease::new(Duration::from_secs(30)).unwrap()));
    let first = begin(&rig, &app, charge("k1")).await;
    let end = START.after(Duration::from_secs(30));
    for (left, allowed) in [(30_000, 2..=3), (2_000, 2..=3), (1_500, 2..=3), (1_000, 1..=2), (1, 1..=1)] {
        rig.clock.set(end.before(Duration::from_millis(left)));
        for _ in 0..20 {
            assert_refused(&send(&app, charge("k1")).await, 409, "request-in-flight", Retry::After(allowed.clone()));
        }
    }
    gate.open();
    first.await.unwrap();
}

#[tokio::test]
async fn an_attempt_without_an_answer_is_409_for_good() {
    let rig = Rig::new();
    let app = panicking(&rig, rig.layer());
    assert_eq!(send(&app, charge("k1")).await.status, 500);
    rig.clock.advance(HOUR);
    let answer = send(&app, charge("k1")).await;
    assert_refused(&answer, 409, "outcome-unknown", Retry::Never);
    assert_eq!(answer.json()["since"], "2027-01-15T08:00:00Z");
    assert_eq!(answer.json()["attempt"], 1);
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_409_since_the_end_of_its_lease() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer());
    let first = begin(&rig, &app, charge("k1")).await;
    rig.clock.advance(Duration::from_secs(45));
    let answer = send(&app, charge("k1")).await;
    assert_refused(&answer, 409, "outcome-unknown", Retry::Never);
    assert_eq!(answer.json()["since"], "2027-01-15T08:00:30Z");
    assert_eq!(rig.runs.count(), 1);
    first.abort();
}

#[tokio::test]
async fn case_14_another_body_is_422_in_every_state_but_released() {
    const SECRET: &str = "the first one's secret answer";
    let rig = Rig::new();
    let short = Windows::new(HOUR, 30 * DAY).unwrap();
    let answers = |status: u16, verdict: Option<Verdict>| {
        move |_: usize| {
            let mut response = (StatusCode::from_u16(status).unwrap(), SECRET).into_response();
            if let Some(verdict) = verdict {
                response.extensions_mut().insert(verdict);
            }
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("/charges/secret"));
            response
        }
    };
    let reused = async |app: &Router, key: &str, state: State| {
        assert_eq!(rig.state(key).await, Some(state), "{key}");
        let runs = rig.runs.count();
        let answer = send(app, charge_of(&format!("\"{key}\""), 99)).await;
        assert_refused(&answer, 422, "idempotency-key-reused", Retry::Never);
        assert_eq!(rig.runs.count(), runs, "{key}");
        let seen = format!("{:?} {}", answer.headers, answer.text());
        assert!(!seen.contains("secret") && !seen.contains("201"), "{seen}");
        let members: Vec<_> = answer.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["detail", "retryable", "status", "title", "type"]);
        assert_eq!(rig.state(key).await, Some(state), "it changes nothing");
    };

    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer());
    let first = begin(&rig, &app, charge("in-flight")).await;
    reused(&app, "in-flight", State::InFlight).await;
    gate.open();
    assert_eq!(first.await.unwrap().status, 201);

    let app = rig.app(rig.layer(), answers(201, None));
    send(&app, charge("completed")).await;
    reused(&app, "completed", State::Completed).await;

    let app = rig.app(rig.layer().max_response(3), answers(201, None));
    send(&app, charge("\"not kept\"")).await;
    reused(&app, "not kept", State::Tombstone).await;

    let app = rig.app(rig.layer(), answers(500, None));
    send(&app, charge("in-doubt-with-answer")).await;
    reused(&app, "in-doubt-with-answer", State::InDoubt).await;

    let app = panicking(&rig, rig.layer());
    send(&app, charge("in-doubt")).await;
    reused(&app, "in-doubt", State::InDoubt).await;

    let app = rig.app(rig.layer(), answers(201, Some(Verdict::Release)));
    assert_eq!(send(&app, charge("released")).await.status, 201);
    assert_eq!(rig.state("released").await, Some(State::Released));
    let runs = rig.runs.count();
    assert_eq!(send(&app, charge_of("released", 99)).await.status, 201);
    assert_eq!(rig.runs.count(), runs + 1, "a corrected request runs");

    let app = rig.app(rig.layer().windows(short), answers(201, None));
    send(&app, charge("tombstone")).await;
    rig.clock.advance(HOUR);
    reused(&app, "tombstone", State::Tombstone).await;
}

#[tokio::test]
async fn another_route_query_method_or_media_type_is_422() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let request = |method: &str, uri: &str, media_type: &str| {
        let request = Request::builder().method(method).uri(uri).header(KEY, "k1").header(CONTENT_TYPE, media_type);
        request.body(Body::from("{\"amount\":10}")).unwrap()
    };
    send(&app, request("POST", "/charge?a=1&b=2", "application/json")).await;
    for (method, uri, media_type) in [
        ("PATCH", "/charge?a=1&b=2", "application/json"),
        ("POST", "/refund?a=1&b=2", "application/json"),
        ("POST", "/charge?b=2&a=1", "application/json"),
        ("POST", "/charge", "application/json"),
        ("POST", "/charge?a=1&b=2", "text/plain"),
    ] {
        let answer = send(&app, request(method, uri, media_type)).await;
        assert_refused(&answer, 422, "idempotency-key-reused", Retry::Never);
    }
    let mut again = request("POST", "/charge?a=1&b=2", "application/json; charset=utf-8");
    again.headers_mut().insert("Authorization", HeaderValue::from_static("Bearer a-new-token"));
    assert!(send(&app, again).await.is_replay(), "parameters and credentials do not count");
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn case_13_a_json_body_is_the_same_in_another_spelling() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let json = |body: &str| {
        let request = Request::post("/charge").header(KEY, "k1").header(CONTENT_TYPE, "application/json");
        request.body(Body::from(body.to_owned())).unwrap()
    };
    send(&app, json(r#"{"a":1,"b":{"c":[2,3],"d":"A"}}"#)).await;
    for same in [r#"{"b":{"d":"A","c":[2,3]},"a":1}"#, "{ \"a\": 1,\n\t\"b\": {\"c\":[2, 3],\"d\":\"\\u0041\"} }"] {
        assert!(send(&app, json(same)).await.is_replay(), "{same}");
    }
    for other in [r#"{"a":1.0,"b":{"c":[2,3],"d":"A"}}"#, r#"{"a":1,"b":{"c":[3,2],"d":"A"}}"#, r#"{"a":1}"#] {
        let answer = send(&app, json(other)).await;
        assert_refused(&answer, 422, "idempotency-key-reused", Retry::Never);
    }
    assert_eq!(rig.runs.count(), 1);

    let rig = Rig::new();
    let app = rig.counting(rig.layer().fingerprint(FingerprintRule::default().body(BodyMode::Raw)));
    send(&app, json(r#"{"a":1,"b":2}"#)).await;
    let answer = send(&app, json(r#"{"b":2,"a":1}"#)).await;
    assert_refused(&answer, 422, "idempotency-key-reused", Retry::Never);
    assert!(send(&app, json(r#"{"a":1,"b":2}"#)).await.is_replay());
}

#[tokio::test]
async fn case_18_an_upload_is_the_same_under_another_boundary() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let upload = |boundary: &str, content: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\n{content}\r\n--{boundary}--\r\n"
        );
        let media_type = format!("multipart/form-data; boundary={boundary}");
        Request::post("/upload").header(KEY, "k1").header(CONTENT_TYPE, media_type).body(Body::from(body)).unwrap()
    };
    send(&app, upload("AAA", "the file")).await;
    assert!(send(&app, upload("BBB", "the file")).await.is_replay());
    let answer = send(&app, upload("AAA", "another")).await;
    assert_refused(&answer, 422, "idempotency-key-reused", Retry::Never);
    assert_eq!(rig.runs.count(), 1);
}

/// Answers with 201 and where the charge is.
fn located(_: usize) -> Response {
    (StatusCode::CREATED, [(LOCATION, "/charges/1")], "charged").into_response()
}

#[tokio::test]
async fn an_answer_that_is_no_longer_kept_is_410_and_tells_what_is_known() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), located);
    send(&app, charge("k1")).await;
    rig.clock.advance(DAY - Duration::from_micros(1));
    assert!(send(&app, charge("k1")).await.is_replay());
    rig.clock.advance(Duration::from_micros(1));
    let answer = send(&app, charge("k1")).await;
    assert_refused(&answer, 410, "response-not-kept", Retry::Never);
    let body = answer.json();
    assert_eq!(body["first_status"], 201);
    assert_eq!(body["completed_at"], "2027-01-15T08:00:00Z");
    assert_eq!(body["location"], "/charges/1");
    rig.clock.advance(29 * DAY - Duration::from_micros(1));
    assert_eq!(send(&app, charge("k1")).await.status, 410);
    assert_eq!(rig.runs.count(), 1);
    rig.clock.advance(Duration::from_micros(1));
    assert_eq!(send(&app, charge("k1")).await.status, 201, "after the tombstone window it is new");
    assert_eq!(rig.runs.count(), 2);
}

#[tokio::test]
async fn late_retries_renew_what_is_remembered_where_that_is_set() {
    let rig = Rig::new();
    let windows = Windows::new(HOUR, 12 * HOUR).unwrap().renewed_up_to(48 * HOUR).unwrap();
    let app = rig.app(rig.layer().windows(windows), located);
    send(&app, charge("k1")).await;
    for hours in [11, 22, 33, 44] {
        rig.clock.advance(11 * HOUR);
        let answer = send(&app, charge("k1")).await;
        assert_refused(&answer, 410, "response-not-kept", Retry::Never);
        assert_eq!(answer.json()["completed_at"], "2027-01-15T08:00:00Z", "after {hours} h");
    }
    rig.clock.advance(4 * HOUR);
    assert_eq!(send(&app, charge("k1")).await.status, 201, "no longer than the cap");
    assert_eq!(rig.runs.count(), 2);
}

#[tokio::test]
async fn the_status_for_an_answer_that_is_not_kept_can_be_set() {
    let rig = Rig::new();
    let layer = rig.layer().max_response(3).not_kept_status(StatusCode::CONFLICT);
    let app = rig.app(layer, |_| "long enough");
    send(&app, charge("k1")).await;
    let answer = send(&app, charge("k1")).await;
    assert_refused(&answer, 409, "response-not-kept", Retry::Never);
    assert_eq!(answer.json()["location"], Value::Null);
    assert_eq!(rig.runs.count(), 1);
}

/// The key of a webhook is in a header of its sender's own.
fn webhook_layer(rig: &Rig) -> IdempotencyLayer<TestStore> {
    rig.layer().key_from_fn(|parts, _| Some(parts.headers.get("webhook-id")?.to_str().ok()?.to_owned()))
}

fn webhook(id: &str) -> Request<Body> {
    Request::post("/webhook").header("webhook-id", id).body(Body::from("paid")).unwrap()
}

#[tokio::test]
async fn a_webhook_whose_answer_is_not_kept_gets_its_status_again() {
    let rig = Rig::new();
    for (status, id) in [(200, "evt_1"), (202, "evt_2"), (204, "evt_3")] {
        let app = rig.app(webhook_layer(&rig), move |_| {
            (StatusCode::from_u16(status).unwrap(), [(LOCATION, "/events/1")]).into_response()
        });
        send(&app, webhook(id)).await;
        rig.clock.advance(DAY);
        let answer = send(&app, webhook(id)).await;
        assert_eq!((answer.status, answer.is_replay(), answer.problem()), (status, true, None));
        assert!(answer.body.is_empty());
        let others =
            answer.headers.keys().filter(|name| !["idempotent-replayed", "content-length"].contains(&name.as_str()));
        assert_eq!(others.count(), 0, "nothing but the mark: {:?}", answer.headers);
    }
    assert_eq!(rig.runs.count(), 3);
    // Nor is there a 410 in this mode because one was asked for.
    let app = rig.counting(webhook_layer(&rig).not_kept_status(StatusCode::GONE));
    assert_eq!(send(&app, webhook("evt_1")).await.status, 200);
}

const MINUTE: Duration = Duration::from_secs(60);

/// Keys of at most a day, dated at most a minute ahead.
fn dated(layer: IdempotencyLayer<TestStore>) -> IdempotencyLayer<TestStore> {
    let age = AgeLimit { max_age: DAY, drift: MINUTE, class: KeyClass::new("uuid7") };
    layer.key_format(KeyFormat::Uuid7, age).unwrap()
}

fn uuid7(made: Timestamp) -> String {
    let millis = made.micros() / 1000;
    format!("{:08x}-{:04x}-7abc-8def-0123456789ab", millis >> 16, millis & 0xFFFF)
}

#[tokio::test]
async fn a_key_too_old_to_be_remembered_is_410() {
    let rig = Rig::new();
    let app = rig.counting(dated(rig.layer()));
    rig.clock.advance(2 * DAY);
    let now = START.after(2 * DAY);
    for made in [now.before(DAY), now.before(DAY + HOUR), Timestamp::from_micros(0)] {
        let answer = send(&app, charge(&uuid7(made))).await;
        assert_refused(&answer, 410, "key-expired", Retry::Never);
        assert!(answer.text().contains("Look the operation up before using a new key"), "{}", answer.text());
    }
    assert_eq!((rig.runs.count(), rig.records()), (0, 0));
    let young = uuid7(now.before(DAY).after(Duration::from_millis(1)));
    assert_eq!(send(&app, charge(&young)).await.status, 201);
    // Where a record answers for it, its age does not matter.
    rig.clock.advance(DAY - Duration::from_secs(1));
    assert!(send(&app, charge(&young)).await.is_replay());
    rig.clock.advance(DAY);
    assert_eq!(send(&app, charge(&young)).await.problem(), Some("response-not-kept"));
    rig.clock.advance(60 * DAY);
    assert_eq!(send(&app, charge(&young)).await.problem(), Some("key-expired"), "and later it never runs again");
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_key_from_the_future_is_400() {
    let rig = Rig::new();
    let app = rig.counting(dated(rig.layer()));
    let answer = send(&app, charge(&uuid7(START.after(MINUTE + Duration::from_millis(1))))).await;
    assert_refused(&answer, 400, "idempotency-key-invalid", Retry::Never);
    assert!(answer.text().contains("in the future"), "{}", answer.text());
    assert_eq!((rig.runs.count(), rig.records()), (0, 0));
    rig.clock.advance(2 * MINUTE);
    assert_eq!(send(&app, charge(&uuid7(START.after(3 * MINUTE)))).await.status, 201, "within the drift");
}

#[tokio::test]
async fn a_key_of_another_format_is_400() {
    let rig = Rig::new();
    let app = rig.counting(dated(rig.layer()));
    for key in ["order-42", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f"] {
        let answer = send(&app, charge(key)).await;
        assert_refused(&answer, 400, "idempotency-key-invalid", Retry::Never);
        assert!(answer.text().contains("UUID of version 7"), "{}", answer.text());
    }
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));
}

#[tokio::test]
async fn an_expired_key_is_400_to_a_webhook_sender() {
    let rig = Rig::new();
    let app = rig.counting(dated(webhook_layer(&rig)));
    rig.clock.advance(2 * DAY);
    let answer = send(&app, webhook(&uuid7(START))).await;
    assert_refused(&answer, 400, "key-expired", Retry::Never);
    assert_eq!(rig.runs.count(), 0);
}

/// A body that says how long it is and must not be read.
struct Unread(u64);

impl http_body::Body for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("it was read")
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn a_request_body_above_the_limit_is_413() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().max_request(8));
    let of = |body: Body| Request::post("/charge").header(KEY, "k1").body(body).unwrap();
    let told = send(&app, of(Body::new(Unread(9)))).await;
    assert_refused(&told, 413, "request-too-large", Retry::Never);
    assert!(told.text().contains("8 bytes"), "{}", told.text());
    let chunks = ["12345", "6789"].map(Ok::<_, Infallible>);
    let streamed = send(&app, of(Body::from_stream(futures_util::stream::iter(chunks)))).await;
    assert_refused(&streamed, 413, "request-too-large", Retry::Never);
    // A layer outside has a limit of its own.
    let limited = Limited::new(Body::from_stream(futures_util::stream::iter(chunks)), 8);
    let wide = rig.counting(rig.layer());
    let told = send(&wide, of(Body::new(limited))).await;
    assert_refused(&told, 413, "request-too-large", Retry::Never);
    assert!(
        told.text().contains("too large") && !told.text().contains("bytes"),
        "it is not this layer's: {}",
        told.text()
    );
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));
    assert_eq!(send(&app, of(Body::from("12345678"))).await.status, 201);
}

#[tokio::test]
async fn a_request_may_have_two_mebibytes_unless_told_otherwise() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let of = |length: usize| Request::post("/x").header(KEY, "k1").body(Body::from(vec![b'x'; length])).unwrap();
    assert_eq!(send(&app, of(2 * 1024 * 1024 + 1)).await.status, 413);
    assert_eq!(send(&app, of(2 * 1024 * 1024)).await.status, 201);
}

#[tokio::test]
async fn a_request_body_that_breaks_off_runs_nothing() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    let chunks = [Ok("10"), Err(std::io::Error::other("reset"))];
    let body = Body::from_stream(futures_util::stream::iter(chunks));
    let answer = send(&app, Request::post("/charge").header(KEY, "k1").body(body).unwrap()).await;
    assert_refused(&answer, 400, "request-unreadable", Retry::Never);
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_say_is_503_and_nothing_runs() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, Fault::StallReply] {
        rig.store.next(Op::Claim, fault);
        let answer = send(&app, charge("k1")).await;
        assert_refused(&answer, 503, "store-unavailable", SOON);
        assert_eq!(rig.runs.count(), 0, "{fault:?}");
        assert_eq!(answer.header("Idempotency-Unprotected"), None);
    }
    // What may have been granted unheard is given up in the background.
    rig.until("k1", State::Released).await;
    assert_eq!(send(&app, charge("k1")).await.text(), "run 1");
}

#[tokio::test]
async fn a_full_store_is_503_and_forgets_nothing() {
    let rig = Rig::with(1);
    let app = rig.counting(rig.layer());
    assert_eq!(send(&app, charge("k1")).await.status, 201);
    assert_refused(&send(&app, charge("k2")).await, 503, "store-full", SOON);
    assert_eq!((rig.runs.count(), rig.records()), (1, 1));
    assert!(send(&app, charge("k1")).await.is_replay());
}

#[tokio::test]
async fn case_19_a_record_of_another_release_is_409_and_never_new() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer());
    // The record of a release whose fingerprints have version 2.
    let claim = idempotency::Claim {
        id: record_id("k1"),
        fingerprint: idempotency::Fingerprint::from_bytes([2; 33]),
        nonce: idempotency::Nonce::random(),
        lease: Lease::default(),
        life: idempotency::Life::default(),
        key_time: None,
        room: 0,
    };
    let idempotency::Claimed::Granted(grant) = rig.store.claim(&claim).await.unwrap() else { panic!() };
    for state in [State::InFlight, State::Completed] {
        assert_eq!(rig.state("k1").await, Some(state));
        let answer = send(&app, charge("k1")).await;
        assert_refused(&answer, 409, "outcome-unknown", Retry::Never);
        assert_eq!(answer.json()["since"], Value::Null);
        let holder = idempotency::Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
        rig.store.complete(&holder, &idempotency::Outcome::new(201, Bytes::new())).await.unwrap();
    }
    assert_eq!(rig.runs.count(), 0);
}

#[tokio::test]
async fn docs_are_linked_where_the_client_broke_a_rule() {
    let rig = Rig::new();
    let docs = Uri::from_static("https://api.example.com/docs");
    let app = rig.counting(rig.layer().key_required(KeyRequired::Required).docs(docs));
    let missing = send(&app, Request::post("/charge").body(Body::empty()).unwrap()).await;
    let invalid = send(&app, charge("a,b")).await;
    for answer in [missing, invalid] {
        assert_eq!(
            (answer.status, answer.header("Link")),
            (400, Some("<https://api.example.com/docs>; rel=\"describedby\""))
        );
    }
}

#[tokio::test]
async fn problem_types_can_have_another_base() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer().problem_base("https://api.example.com/problems/"));
    let answer = send(&app, charge("a,b")).await;
    assert_eq!(answer.json()["type"], "https://api.example.com/problems/idempotency-key-invalid");
}

#[tokio::test]
async fn a_responder_replaces_the_body_and_the_reason_stays() {
    let rig = Rig::new();
    let gate = Gate::default();
    let layer = rig.layer().responder(Responder::from_fn(|refusal, response| {
        let (mut parts, _) = response.into_parts();
        parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        http::Response::from_parts(parts, Bytes::from(refusal.title()))
    }));
    let app = gate.app(&rig, layer);
    let first = begin(&rig, &app, charge("k1")).await;
    let answer = send(&app, charge("k1")).await;
    assert_eq!((answer.status, answer.header("Content-Type")), (409, Some("text/plain")));
    assert_eq!(answer.text(), "A request with this idempotency key is being processed");
    assert!(answer.header("Retry-After").is_some());
    assert_eq!(answer.problem(), Some("request-in-flight"));
    let answer = send(&app, charge("a,b")).await;
    assert_eq!((answer.status, answer.problem()), (400, Some("idempotency-key-invalid")));
    first.abort();
}

#[tokio::test]
async fn stripes_clients_are_told_in_their_own_way() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer().responder(Responder::stripe()));
    let first = begin(&rig, &app, charge("k1")).await;
    let in_flight = send(&app, charge("k1")).await;
    assert_eq!((in_flight.status, in_flight.header("Stripe-Should-Retry")), (409, Some("true")));
    assert!(in_flight.header("Retry-After").is_some());
    assert_eq!(in_flight.header("Content-Type"), Some("application/json"));
    assert_eq!(in_flight.header("Cache-Control"), Some("no-store"));
    let error = &in_flight.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("idempotency_error"), &json!("idempotency_key_in_use")));
    let reused = send(&app, charge_of("k1", 99)).await;
    assert_eq!((reused.status, reused.header("Stripe-Should-Retry")), (422, Some("false")));
    assert_eq!(reused.json()["error"]["type"], "idempotency_error");
    let invalid = send(&app, charge("a,b")).await;
    assert_eq!(invalid.json()["error"]["type"], "invalid_request_error");
    rig.store.next(Op::Claim, Fault::Fail);
    let outage = send(&app, charge("k2")).await;
    assert_eq!((outage.status, outage.header("Stripe-Should-Retry")), (503, Some("true")));
    assert_eq!(outage.json()["error"]["type"], "api_error");
    gate.open();
    assert_eq!(first.await.unwrap().header("Stripe-Should-Retry"), None, "a handler's answer is its own");
}

#[tokio::test]
async fn case_03_a_failure_before_anything_happened_can_be_said_to_be_one() {
    let rig = Rig::new();
    let fail_once = |run| {
        let mut response = if run == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED }.into_response();
        if run == 1 {
            response.extensions_mut().insert(Verdict::Release);
        }
        response
    };
    let app = rig.app(rig.layer(), fail_once);
    assert_eq!(send(&app, charge("k1")).await.status, 503);
    let healed = send(&app, charge("k1")).await;
    assert_eq!((healed.status, healed.is_replay()), (201, false));
    // A failure that says nothing of the kind is never run again unseen.
    let app = rig.app(rig.layer(), |_| StatusCode::SERVICE_UNAVAILABLE);
    let runs = rig.runs.count();
    assert_eq!(send(&app, charge("k2")).await.status, 503);
    assert!(send(&app, charge("k2")).await.is_replay());
    assert_eq!(rig.runs.count(), runs + 1);
}

#[tokio::test]
async fn case_04_a_wrong_code_does_not_wedge_the_key() {
    let rig = Rig::new();
    let verify = async |Json(body): Json<Value>| {
        if body["code"] == "123456" { (StatusCode::OK, "verified") } else { (StatusCode::BAD_REQUEST, "wrong code") }
    };
    let app = Router::new().route("/verify", axum::routing::post(verify)).layer(rig.layer());
    let of = |code: &str| {
        let request = Request::post("/verify").header(KEY, "k1").header(CONTENT_TYPE, "application/json");
        request.body(Body::from(json!({ "code": code }).to_string())).unwrap()
    };
    assert_eq!(send(&app, of("000000")).await.text(), "wrong code");
    let right = send(&app, of("123456")).await;
    assert_eq!((right.status, right.text(), right.is_replay()), (200, "verified", false));
    let wrong = send(&app, of("000000")).await;
    assert_refused(&wrong, 422, "idempotency-key-reused", Retry::Never);

    // Recorded, because the service chose so: the corrected request is told, and does not get the old answer as if fresh.
    let app = rig.app(rig.layer().record(RecordPolicy::Stripe), |_| StatusCode::BAD_REQUEST);
    assert_eq!(send(&app, charge("k2")).await.status, 400);
    assert_refused(&send(&app, charge_of("k2", 99)).await, 422, "idempotency-key-reused", Retry::Never);
}

#[tokio::test]
async fn under_rerun_an_attempt_whose_lease_ended_is_run_again() {
    let rig = Rig::new();
    let gate = Gate::default();
    let app = gate.app(&rig, rig.layer().recovery(Recovery::Rerun));
    let first = begin(&rig, &app, charge("k1")).await;
    rig.clock.advance(Duration::from_secs(29));
    assert_refused(&send(&app, charge("k1")).await, 409, "request-in-flight", SOON);
    rig.clock.advance(Duration::from_secs(1));
    let second = begin(&rig, &app, charge("k1")).await;
    gate.open();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    // One key, one answer: the newer attempt's, whoever was quicker.
    assert_eq!(second.text(), "run 2");
    assert!(first.problem() == Some("request-in-flight") || first.text() == "run 2", "{first:?}");
    assert_eq!(send(&app, charge("k1")).await.text(), "run 2");
}
