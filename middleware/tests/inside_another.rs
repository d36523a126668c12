//! A layer inside another with keys of its own: what the inner one refuses is no answer to the outer one's key.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use common::{Answer, Rig, TestStore, charge, send};
use http::{HeaderName, HeaderValue, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::{Recovery, State};
use tokio::sync::Semaphore;
use tower_idempotency::{IdempotencyLayer, RecordPolicy, Refusal};

const ORDER: HeaderName = HeaderName::from_static("x-order");
const RECOVERIES: [Recovery; 2] = [Recovery::Hold, Recovery::Rerun];

/// The outer layer's store and the inner one's, which is keyed by the order.
struct Pair {
    outer: Rig,
    inner: Rig,
}

impl Pair {
    fn new() -> Self {
        Self { outer: Rig::new(), inner: Rig::new() }
    }

    fn inner_layer(&self) -> IdempotencyLayer<TestStore> {
        self.inner.layer().key_header(ORDER)
    }
}

fn order(key: &str) -> Request {
    let mut request = charge(key);
    request.headers_mut().insert(ORDER, HeaderValue::from_static("order-1"));
    request
}

fn problem_of(answer: &Answer) -> (u16, Option<&'static str>, bool) {
    (answer.status, answer.problem(), answer.header("Retry-After").is_some())
}

#[tokio::test]
async fn a_key_that_was_told_to_ask_again_gets_the_inner_answer_when_there_is_one() {
    for policy in [RecordPolicy::Default, RecordPolicy::Stripe] {
        for recovery in RECOVERIES {
            let pair = Pair::new();
            let open = Arc::new(Semaphore::new(0));
            let (runs, gate) = (pair.inner.runs.clone(), Arc::clone(&open));
            let handler = async move || {
                let run = runs.begin();
                gate.acquire().await.unwrap().forget();
                (StatusCode::CREATED, format!("run {run}"))
            };
            let app = Router::new()
                .route("/charge", post(handler))
                .layer(pair.inner_layer())
                .layer(pair.outer.layer().record(policy.clone()).recovery(recovery));
            let first = tokio::spawn({
                let app = app.clone();
                async move { send(&app, order("k1")).await }
            });
            while pair.inner.runs.count() == 0 {
                tokio::task::yield_now().await;
            }
            let told = send(&app, order("k2")).await;
            assert_eq!(problem_of(&told), (409, Some("request-in-flight"), true));
            assert_eq!(pair.outer.state("k2").await, Some(State::Released), "{policy:?}, {recovery:?}");
            open.add_permits(1);
            assert_eq!(first.await.unwrap().text(), "run 1");
            let again = send(&app, order("k2")).await;
            assert_eq!((again.status, again.text()), (201, "run 1"), "as it was told to");
            assert_eq!(pair.inner.runs.count(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_request_never_ran_because_of_the_inner_store_is_free() {
    for recovery in RECOVERIES {
        let pair = Pair::new();
        let app = pair.inner.counting(pair.inner_layer()).layer(pair.outer.layer().recovery(recovery));
        pair.inner.store.next(Op::Claim, Fault::Fail);
        assert_eq!(problem_of(&send(&app, order("k1")).await), (503, Some("store-unavailable"), true));
        assert_eq!(pair.outer.state("k1").await, Some(State::Released));
        assert_eq!(send(&app, order("k1")).await.text(), "run 1");
    }
}

#[tokio::test]
async fn a_key_whose_inner_outcome_is_unknown_is_in_doubt_or_asks_again() {
    let policies = [RecordPolicy::Default, RecordPolicy::Stripe];
    for (policy, recovery) in policies.iter().flat_map(|policy| RECOVERIES.map(|recovery| (policy, recovery))) {
        let pair = Pair::new();
        let failing = pair.inner.app(pair.inner_layer(), |_| -> StatusCode { panic!("half-way") });
        let app = failing.layer(pair.outer.layer().record(policy.clone()).recovery(recovery));
        assert_eq!(send(&app, order("k1")).await.problem(), Some("handler-panicked"));
        let told = send(&app, order("k2")).await;
        assert_eq!(problem_of(&told), (409, Some("outcome-unknown"), false));
        let state = if recovery == Recovery::Hold { State::InDoubt } else { State::Released };
        assert_eq!(pair.outer.state("k2").await, Some(state), "{policy:?}");
        assert_eq!(problem_of(&send(&app, order("k2")).await), (409, Some("outcome-unknown"), false));
        assert_eq!(pair.inner.runs.count(), 1);
    }
}

/// It ran inside, and its outcome is not on record there: the outer key cannot be free under `Hold`, and must not ask for a retry.
#[tokio::test(start_paused = true)]
async fn a_key_whose_inner_outcome_could_not_be_recorded_is_in_doubt_or_asks_again() {
    for (recovery, state) in [(Recovery::Hold, State::InDoubt), (Recovery::Rerun, State::Released)] {
        for policy in [RecordPolicy::Default, RecordPolicy::Stripe] {
            let pair = Pair::new();
            let inner = pair.inner.counting(pair.inner_layer().recovery(Recovery::Rerun));
            let app = inner.layer(pair.outer.layer().record(policy).recovery(recovery));
            pair.inner.store.next(Op::Complete, Fault::Fail);
            let told = send(&app, order("k1")).await;
            assert_eq!(told.header("Retry-After").is_some(), recovery == Recovery::Rerun);
            assert_eq!(pair.outer.state("k1").await, Some(state));
            tokio::time::sleep(Duration::from_secs(60)).await;
            let again = send(&app, order("k1")).await;
            match recovery {
                Recovery::Hold => assert_eq!(problem_of(&again), (409, Some("outcome-unknown"), false)),
                Recovery::Rerun => assert_eq!((again.status, again.text()), (201, "run 1")),
            }
            assert_eq!(pair.inner.runs.count(), 1);
        }
    }
}

/// What cannot change is an answer like any other.
#[tokio::test]
async fn a_refusal_that_no_retry_can_change_is_recorded_as_its_status_says() {
    let pair = Pair::new();
    let inner = pair.inner.counting(pair.inner_layer().max_response(0));
    let app = inner.layer(pair.outer.layer());
    assert_eq!(send(&app, order("k1")).await.text(), "run 1");
    let told = send(&app, order("k2")).await;
    assert_eq!(problem_of(&told), (410, Some("response-not-kept"), false));
    assert_eq!(pair.outer.state("k2").await, Some(State::Completed));
    let again = send(&app, order("k2")).await;
    assert!(again.is_replay() && again.extensions.get::<Refusal>().is_none(), "{again:?}");
    assert_eq!(again.body, told.body);
}

#[tokio::test]
async fn mounted_twice_it_runs_once_and_replays() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer()).layer(rig.layer());
    let first = send(&app, charge("k1")).await;
    assert_eq!((first.status, first.text()), (201, "run 1"));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, again.text(), again.is_replay()), (201, "run 1", true));
    assert_eq!(rig.runs.count(), 1);
}
