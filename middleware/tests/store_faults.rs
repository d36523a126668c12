//! What the layer does when its store fails it.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use http_body_util::BodyExt as _;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{
    Entry, Key, Lease, Outcome, RecordId, Recovery, Resolve, ResolveVerdict, Resolved, ScopeId, State, Store,
};
use idempotency_memory::MemoryStore;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Outage, Replayed, Scope};

type Faulty = FaultyStore<MemoryStore>;

const LEASE: Duration = Duration::from_millis(300);

const QUICK: Duration = Duration::ZERO;

/// A charge that takes `took` and has one effect, behind a layer over a store that misbehaves on command.
struct Bench {
    store: Faulty,
    effects: Arc<AtomicU32>,
    app: Router,
}

impl Bench {
    fn new(took: Duration, change: impl FnOnce(IdempotencyLayer<Faulty>) -> IdempotencyLayer<Faulty>) -> Self {
        let store = FaultyStore::new(MemoryStore::new());
        let layer = IdempotencyLayer::new(store.clone(), Scope::global())
            .lease(Lease::new(LEASE).unwrap())
            .store_timeout(Duration::from_millis(100))
            .unwrap();
        let layer = change(layer);
        let effects = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&effects);
        let charge = async move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            sleep(took).await;
            (StatusCode::CREATED, format!("charge {number}"))
        };
        let app = Router::new().route("/charge", post(charge)).layer(layer);
        Self { store, effects, app }
    }

    fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    async fn post(&self) -> Response<Body> {
        post_to(&self.app).await
    }

    async fn entry(&self) -> Option<Entry> {
        self.store.inner().inspect(&id()).await.unwrap()
    }

    async fn eventually(&self, wanted: State) {
        let reached = async {
            while self.entry().await.map(|entry| entry.state) != Some(wanted) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), reached).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
    }

    async fn resolve(&self, outcome: Outcome) {
        self.eventually(State::InDoubt).await;
        let token_seen = self.entry().await.unwrap().token.unwrap();
        let verdict = ResolveVerdict::Happened(outcome);
        let resolve = Resolve { id: id(), token_seen, verdict, who: "ops".into(), why: "bank statement".into() };
        assert_eq!(self.store.resolve(&resolve).await.unwrap(), Resolved::Applied);
    }
}

fn id() -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse("k").unwrap())
}

async fn post_to(app: &Router) -> Response<Body> {
    let request = Request::post("/charge").header("idempotency-key", "k").body(Body::from("{}")).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

fn hold(layer: IdempotencyLayer<Faulty>) -> IdempotencyLayer<Faulty> {
    layer
}

fn rerun(layer: IdempotencyLayer<Faulty>) -> IdempotencyLayer<Faulty> {
    layer.recovery(Recovery::Rerun)
}

#[track_caller]
fn assert_retryable_503(response: &Response<Body>) {
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let wait: u32 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait));
}

#[tokio::test]
async fn case_48_a_store_that_is_down_stops_the_handler() {
    let bench = Bench::new(QUICK, hold);
    for fault in [Fault::Fail, Fault::Disconnect, Fault::Stall] {
        bench.store.always(Op::Claim, fault);
        assert_retryable_503(&bench.post().await);
    }
    assert_eq!(bench.effects(), 0, "nothing ran");
    bench.store.heal();
    assert_eq!(bench.post().await.status(), StatusCode::CREATED);
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn an_outage_is_passed_through_only_when_said_and_the_answer_says_so() {
    let bench = Bench::new(QUICK, |layer| layer.outage(Outage::Pass));
    bench.store.always(Op::Claim, Fault::Fail);
    for _ in 0..2 {
        let response = bench.post().await;
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers()["idempotency-unprotected"], "true");
    }
    assert_eq!(bench.effects(), 2, "without protection a repeat runs again");
    bench.store.heal();
    assert!(!bench.post().await.headers().contains_key("idempotency-unprotected"));
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_runs_on_the_retry() {
    for fault in [Fault::LoseReply, Fault::StallReply, Fault::Late(Duration::from_millis(150))] {
        let bench = Bench::new(QUICK, hold);
        bench.store.next(Op::Claim, fault);
        assert_retryable_503(&bench.post().await);
        bench.eventually(State::Released).await;
        sleep(Duration::from_millis(200)).await; // the late one comes, and is refused
        assert_eq!(bench.post().await.status(), StatusCode::CREATED, "{fault:?}");
        assert_eq!(bench.effects(), 1);
    }
}

#[tokio::test]
async fn a_store_that_answers_after_the_deadline_is_an_outage_and_not_a_grant() {
    let bench = Bench::new(QUICK, hold);
    bench.store.next(Op::Claim, Fault::LateReply(Duration::from_millis(200)));
    assert_retryable_503(&bench.post().await);
    assert_eq!(bench.effects(), 0);
    bench.eventually(State::Released).await;
}

#[tokio::test]
async fn under_hold_the_client_gets_its_answer_and_recording_goes_on() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Stall, Fault::StallReply] {
        let bench = Bench::new(QUICK, hold);
        bench.store.next(Op::Complete, fault);
        assert_eq!(text(bench.post().await).await, "charge 1");
        bench.eventually(State::Completed).await;
        let again = bench.post().await;
        assert!(again.extensions().get::<Replayed>().is_some());
        assert_eq!(text(again).await, "charge 1");
        assert_eq!(bench.effects(), 1);
    }
}

#[tokio::test]
async fn case_51_a_lost_finish_is_in_flight_then_in_doubt_and_never_a_second_run() {
    let bench = Bench::new(QUICK, hold);
    bench.store.always(Op::Complete, Fault::Fail);
    bench.store.always(Op::Renew, Fault::Fail);
    assert_eq!(bench.post().await.status(), StatusCode::CREATED);
    let in_flight = bench.post().await;
    assert_eq!(in_flight.status(), StatusCode::CONFLICT);
    assert!(in_flight.headers().contains_key("retry-after"));
    bench.eventually(State::InDoubt).await;
    let in_doubt = bench.post().await;
    assert_eq!(in_doubt.status(), StatusCode::CONFLICT);
    assert!(!in_doubt.headers().contains_key("retry-after"));
    bench.store.heal();
    bench.eventually(State::Completed).await;
    assert_eq!(text(bench.post().await).await, "charge 1");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn under_rerun_no_success_is_sent_before_it_is_recorded() {
    let bench = Bench::new(QUICK, rerun);
    bench.store.next(Op::Complete, Fault::Fail);
    assert_retryable_503(&bench.post().await);
    bench.eventually(State::Completed).await;
    assert_eq!(text(bench.post().await).await, "charge 1", "the retry finds what was recorded meanwhile");
    assert_eq!(bench.effects(), 1);
}

#[tokio::test]
async fn a_superseded_attempt_is_answered_from_the_record() {
    let bench = Bench::new(LEASE * 2, rerun);
    bench.store.always(Op::Renew, Fault::Stall); // as if this process were paused
    let slow = tokio::spawn({
        let app = bench.app.clone();
        async move { post_to(&app).await }
    });
    sleep(LEASE + Duration::from_millis(50)).await;
    bench.store.heal();
    // Somebody else takes over and is still running when the slow one ends.
    let (slow, newer) = tokio::join!(slow, bench.post());
    let slow = slow.unwrap();
    assert_eq!(slow.status(), StatusCode::CONFLICT, "its own answer is thrown away");
    assert!(slow.headers().contains_key("retry-after"));
    assert_eq!(text(newer).await, "charge 2");
    assert_eq!(text(bench.post().await).await, "charge 2", "one key has one answer");
}

#[tokio::test]
async fn a_resolution_is_the_answer_even_when_the_attempt_ends_late() {
    let bench = Bench::new(LEASE * 3, hold);
    bench.store.always(Op::Renew, Fault::Stall);
    let resolved = tower_idempotency::recorded(Response::new("resolved".into()));
    let (slow, ()) = tokio::join!(bench.post(), bench.resolve(resolved));
    assert_eq!(slow.status(), StatusCode::OK);
    assert_eq!(text(slow).await, "resolved");
    assert_eq!(text(bench.post().await).await, "resolved");
}

#[tokio::test]
async fn a_release_that_fails_is_tried_again_until_the_key_is_free() {
    let store = FaultyStore::new(MemoryStore::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::global());
    let engine = layer.engine().clone();
    let app = Router::new().route("/charge", post(async || StatusCode::BAD_REQUEST)).layer(layer);
    store.next(Op::Release, Fault::Fail);
    store.next(Op::Release, Fault::LoseReply);
    for _ in 0..2 {
        assert_eq!(post_to(&app).await.status(), StatusCode::BAD_REQUEST);
        assert!(engine.drain(Duration::from_secs(5)).await);
    }
}

#[tokio::test]
async fn a_response_of_an_unknown_format_is_refused_and_never_run_again() {
    let bench = Bench::new(QUICK, hold);
    bench.store.always(Op::Complete, Fault::Fail);
    bench.store.always(Op::Renew, Fault::Fail);
    assert_eq!(bench.post().await.status(), StatusCode::CREATED);
    bench.resolve(Outcome::new(201, b"\xff from the future".as_slice().into())).await;
    bench.store.heal();
    let response = bench.post().await;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert!(!response.headers().contains_key("retry-after"));
    assert!(text(response).await.contains("outcome-unknown"));
    assert_eq!(bench.effects(), 1);
}
