//! Handlers under a lease.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Extension;
use axum::response::IntoResponse as _;
use axum::routing::post;
use axum::{Error, Router};
use common::{KEY, Rig, Runs, send};
use http::{Request, StatusCode};
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{FencingToken, Lease, LeaseSettings, LeaseView, Leaser, Resource, State, Taken};
use idempotency_memory::MemoryLeases;
use tokio::sync::Notify;
use tokio::time::timeout;
use tower::ServiceExt as _;
use tower_idempotency::{LeaseLayer, Refusal};

type Leases = FaultyStore<MemoryLeases>;

const LEASE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(10);

struct Desk {
    leases: Leases,
    leaser: Leaser<Leases>,
    runs: Runs,
    /// Lets one handler go on.
    go_on: Arc<Notify>,
}

impl Desk {
    fn new() -> Self {
        let leases = FaultyStore::new(MemoryLeases::new());
        let settings = LeaseSettings::default().lease(Lease::new(LEASE).unwrap());
        let leaser = Leaser::new(leases.clone(), settings.store_timeout(Duration::from_millis(100)).unwrap());
        Self { leases, leaser, runs: Runs::default(), go_on: Arc::default() }
    }

    /// A lease on what the path names; none for `/free`.
    fn layer(&self) -> LeaseLayer<Leases> {
        LeaseLayer::new(self.leaser.clone(), |parts| {
            let path = parts.uri.path();
            (path != "/free").then(|| Resource::parse(path).unwrap())
        })
    }

    /// Says its token, or `none` without a lease; `?hold` waits until it may go on.
    fn app(&self, layer: LeaseLayer<Leases>) -> Router {
        let (runs, go_on) = (self.runs.clone(), Arc::clone(&self.go_on));
        let handler = async move |request: Request<Body>| {
            runs.begin();
            match request.uri().query() {
                Some("hold") => go_on.notified().await,
                Some("panic") => panic!("on purpose"),
                _ => {}
            }
            let lease = request.extensions().get::<LeaseView>().cloned();
            match lease.map(|lease| lease.token()) {
                Some(Ok(token)) => token.to_string(),
                Some(Err(lost)) => lost.to_string(),
                None => "none".to_owned(),
            }
        };
        Router::new().fallback(handler).layer(layer)
    }

    async fn is_held(&self, path: &str) -> bool {
        let entry = self.leaser.inspect(&Resource::parse(path).unwrap()).await.unwrap();
        entry.is_some_and(|entry| entry.lease_left.is_some())
    }

    async fn until_running(&self, runs: usize) {
        let reached = async {
            while self.runs.count() < runs {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, reached).await.expect("running");
    }
}

fn to(path: &str) -> Request<Body> {
    Request::post(path).body(Body::empty()).unwrap()
}

fn number(text: &str) -> FencingToken {
    FencingToken::new(text.parse().unwrap()).unwrap()
}

#[tokio::test]
async fn a_handler_runs_under_a_lease_that_is_free_when_it_has_answered() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    let mut last = FencingToken::new(1).unwrap();
    for _ in 0..3 {
        let answer = send(&app, to("/accounts/7")).await;
        assert_eq!(answer.status, 200);
        assert!(number(answer.text()) > last);
        last = number(answer.text());
        assert!(!desk.is_held("/accounts/7").await);
    }
    assert_eq!(desk.leases.calls(Op::Release), 3);
}

#[tokio::test]
async fn what_is_held_is_refused_and_may_be_asked_for_again() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    let first = tokio::spawn({
        let app = app.clone();
        async move { send(&app, to("/accounts/7?hold")).await }
    });
    desk.until_running(1).await;
    let answer = send(&app, to("/accounts/7")).await;
    assert_eq!((answer.status, answer.problem()), (409, Some("lease-held")));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    assert_eq!(answer.json()["retryable"], true);
    // Another resource is nobody's business.
    assert_eq!(send(&app, to("/accounts/8")).await.status, 200);
    assert_eq!(desk.runs.count(), 2);

    desk.go_on.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(send(&app, to("/accounts/7")).await.status, 200);
}

#[tokio::test]
async fn a_lease_is_waited_for_when_it_is_said() {
    let desk = Desk::new();
    let app = desk.app(desk.layer().wait(PATIENCE));
    let requests = (0..8).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { send(&app, to("/accounts/7")).await })
    });
    let mut tokens = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        tokens.push(number(request.await.unwrap().text()));
    }
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 8, "each had it in its turn");
}

#[tokio::test]
async fn waiting_is_bounded() {
    let desk = Desk::new();
    let app = desk.app(desk.layer().wait(Duration::from_millis(50)));
    let Taken::Yours(_lease) = desk.leaser.try_acquire(&Resource::parse("/accounts/7").unwrap()).await.unwrap() else {
        panic!("it is free")
    };
    let answer = timeout(PATIENCE, send(&app, to("/accounts/7"))).await.expect("bounded");
    assert_eq!(answer.problem(), Some("lease-held"));
    assert!(desk.leases.calls(Op::TryAcquire) > 2 && desk.runs.count() == 0);
}

#[tokio::test]
async fn a_request_without_a_resource_is_passed_on_without_a_store_call() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    assert_eq!(send(&app, to("/free")).await.text(), "none");
    assert_eq!(desk.leases.all_calls(), 0);
}

#[tokio::test]
async fn nothing_runs_while_the_store_cannot_say() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    for fault in [Fault::Fail, Fault::Stall, Fault::LoseReply] {
        desk.leases.next(Op::TryAcquire, fault);
        let answer = send(&app, to("/accounts/7")).await;
        assert_eq!((answer.status, answer.problem()), (503, Some("store-unavailable")), "{fault:?}");
        assert!(answer.header("retry-after").is_some());
        assert!(desk.leaser.drain(PATIENCE).await, "and nobody is kept out by it");
    }
    assert_eq!(desk.runs.count(), 0);
    assert_eq!(send(&app, to("/accounts/7")).await.status, 200);
}

#[tokio::test]
async fn a_lease_that_cannot_be_given_back_delays_the_answer_and_not_for_long() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    desk.leases.next(Op::Release, Fault::Stall);
    assert_eq!(send(&app, to("/accounts/7")).await.status, 200);
    assert!(desk.leaser.drain(PATIENCE).await);
    assert!(!desk.is_held("/accounts/7").await);
}

#[tokio::test]
async fn a_panic_and_a_client_that_left_give_the_lease_back() {
    let desk = Desk::new();
    let app = desk.app(desk.layer());
    let panicking = tokio::spawn(app.clone().oneshot(to("/accounts/7?panic")));
    assert!(panicking.await.is_err());
    assert!(desk.leaser.drain(PATIENCE).await);
    assert!(!desk.is_held("/accounts/7").await);

    let leaving = app.clone().oneshot(to("/accounts/7?hold"));
    assert!(timeout(Duration::from_millis(50), leaving).await.is_err(), "the client left");
    assert_eq!(desk.runs.count(), 2);
    assert!(desk.leaser.drain(PATIENCE).await);
    assert!(!desk.is_held("/accounts/7").await);
    assert_eq!(desk.leases.calls(Op::Release), 2);
}

#[tokio::test]
async fn case_82_a_handler_whose_lease_is_lost_is_told_and_gets_no_token() {
    let desk = Desk::new();
    let handler = async |Extension(lease): Extension<LeaseView>| {
        lease.lost().await;
        lease.token().map_or_else(|lost| lost.to_string(), |token| token.to_string())
    };
    let app = Router::new().route("/accounts/7", post(handler)).layer(desk.layer());
    desk.leases.always(Op::Renew, Fault::Stall); // cut off from the store
    let answer = timeout(LEASE * 3, send(&app, to("/accounts/7"))).await.expect("told at the lease's end");
    assert_eq!(answer.text(), "the lease is lost");
}

#[tokio::test]
async fn an_error_of_the_inner_service_is_passed_on_and_the_lease_given_back() {
    let desk = Desk::new();
    let failing = tower::service_fn(async |_: Request<Body>| Err::<http::Response<Body>, _>(Error::new("broken")));
    let service = tower::Layer::layer(&desk.layer(), failing);
    let error = service.oneshot(to("/accounts/7")).await.map(drop).unwrap_err();
    assert_eq!(error.to_string(), "broken");
    assert!(!desk.is_held("/accounts/7").await);
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let desk = Desk::new();
    let inner = tower::service_fn(async |_: Request<Body>| Ok::<_, Error>(http::Response::new(Body::empty())));
    let limited = tower::limit::ConcurrencyLimit::new(inner, 1);
    let service = tower::Layer::layer(&desk.layer(), limited);
    for _ in 0..3 {
        let response = service.clone().oneshot(to("/accounts/7")).await.unwrap(); // panics when a clone is called
        assert_eq!(response.status(), StatusCode::OK);
    }
}

mod under_a_key {
    use super::*;

    fn keyed(path: &str) -> Request<Body> {
        Request::post(path).header(KEY, "k").body(Body::empty()).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_for_want_of_the_lease_is_not_the_outcome() {
        let (rig, desk) = (Rig::new(), Desk::new());
        let app = desk.app(desk.layer()).layer(rig.layer());
        let held = desk.leaser.try_acquire(&Resource::parse("/accounts/7").unwrap()).await.unwrap();
        let answer = send(&app, keyed("/accounts/7")).await;
        assert_eq!((answer.status, answer.problem()), (409, Some("lease-held")));
        assert_eq!(rig.state("k").await, Some(State::Released));
        assert!(matches!(answer.extensions.get::<Refusal>(), Some(Refusal::LeaseHeld { .. })));

        drop(held);
        assert!(desk.leaser.drain(PATIENCE).await);
        desk.leases.next(Op::TryAcquire, Fault::Fail);
        assert_eq!(send(&app, keyed("/accounts/7")).await.problem(), Some("store-unavailable"));
        assert_eq!(rig.state("k").await, Some(State::Released));

        assert_eq!(send(&app, keyed("/accounts/7")).await.status, 200);
        assert_eq!((rig.state("k").await, desk.runs.count()), (Some(State::Completed), 1));
    }

    #[tokio::test]
    async fn a_duplicate_is_answered_without_a_lease() {
        let (rig, desk) = (Rig::new(), Desk::new());
        let app = desk.app(desk.layer()).layer(rig.layer());
        let first = send(&app, keyed("/accounts/7")).await;
        let again = send(&app, keyed("/accounts/7")).await;
        assert!(again.is_replay() && again.body == first.body);
        assert_eq!(desk.leases.calls(Op::TryAcquire), 1);
    }

    #[tokio::test]
    async fn work_whose_client_left_keeps_the_lease_to_its_end() {
        let (rig, desk) = (Rig::new(), Desk::new());
        let app = desk.app(desk.layer()).layer(rig.layer());
        let leaving = app.clone().oneshot(keyed("/accounts/7?hold"));
        assert!(timeout(Duration::from_millis(50), leaving).await.is_err(), "the client left");
        assert!(desk.is_held("/accounts/7").await);
        desk.go_on.notify_one();
        rig.until("k", State::Completed).await;
        assert!(!desk.is_held("/accounts/7").await);
    }

    #[tokio::test]
    async fn a_handler_may_refuse_by_itself_and_frees_the_key() {
        let rig = Rig::new();
        let current = FencingToken::new(35).unwrap();
        let refusals = [Refusal::FencingTokenSuperseded { current }, Refusal::lease_held(LEASE)];
        for (refusal, kind) in refusals.into_iter().zip(["fencing-token-superseded", "lease-held"]) {
            let answer = refusal.clone();
            let app = rig.app(rig.layer(), move |_| answer.clone().into_response::<Body>().into_response());
            let answer = send(&app, keyed("/accounts/7")).await;
            assert_eq!((answer.status, answer.problem()), (409, Some(kind)));
            assert_eq!(rig.state("k").await, Some(State::Released), "{kind}");
            assert_eq!(answer.json()["type"], format!("urn:tower-idempotency:problem:{kind}"));
        }
        assert_eq!(rig.runs.count(), 2);
    }
}
