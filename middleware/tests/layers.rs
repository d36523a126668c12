//! Where the layer stands among others: each statement about their order, shown.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use common::{KEY, Rig, TestStore, charge, charge_of, send};
use http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN, RETRY_AFTER,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use idempotency::{ScopeId, State};
use tokio::sync::Semaphore;
use tower::buffer::Buffer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_idempotency::{IdempotencyLayer, Refusal, Replayed, Scope};

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(1))
}

/// A router whose handler takes ten seconds.
fn slow(rig: &Rig) -> Router {
    let runs = rig.runs.clone();
    Router::new().fallback(async move || {
        let run = runs.begin();
        tokio::time::sleep(Duration::from_secs(10)).await;
        (StatusCode::CREATED, format!("run {run}"))
    })
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_leaves_the_work_going_and_the_retry_gets_its_answer() {
    let rig = Rig::new();
    let app = slow(&rig).layer(rig.layer()).layer(timeout());
    assert_eq!(send(&app, charge("k1")).await.status, 408);
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("request-in-flight"));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let retry = send(&app, charge("k1")).await;
    assert_eq!((retry.status, retry.text(), retry.is_replay()), (201, "run 1", true));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_inside_cuts_the_work_and_looks_like_an_answer() {
    let rig = Rig::new();
    let app = slow(&rig).layer(timeout()).layer(rig.layer());
    assert_eq!(send(&app, charge("k1")).await.status, 408);
    assert_eq!(rig.state("k1").await, Some(State::InDoubt));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let retry = send(&app, charge("k1")).await;
    assert_eq!(
        (retry.status, retry.is_replay()),
        (408, true),
        "nobody knows how far it came, and it does not run again"
    );
    assert_eq!(rig.runs.count(), 1);
}

fn accepting(key: &str, encoding: &'static str) -> Request {
    let mut request = charge(key);
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    request
}

#[tokio::test]
async fn compression_outside_gives_each_client_the_encoding_it_takes() {
    let rig = Rig::new();
    let text = "the same words again and again; ".repeat(100);
    let answer = text.clone();
    let app = rig.app(rig.layer(), move |_| answer.clone()).layer(CompressionLayer::new());
    let first = send(&app, accepting("k1", "gzip")).await;
    assert_eq!(first.header("Content-Encoding"), Some("gzip"));
    assert!(first.body.starts_with(&[0x1F, 0x8B]) && first.body.len() < text.len());
    let plain = send(&app, accepting("k1", "identity")).await;
    assert!(plain.is_replay());
    assert_eq!((plain.header("Content-Encoding"), plain.text()), (None, text.as_str()));
    let again = send(&app, accepting("k1", "gzip")).await;
    assert_eq!((again.header("Content-Encoding"), &again.body), (Some("gzip"), &first.body));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn compression_inside_replays_the_first_clients_encoding() {
    let rig = Rig::new();
    let text = "the same words again and again; ".repeat(100);
    let app = rig.handler(move |_| text.clone()).layer(CompressionLayer::new()).layer(rig.layer());
    send(&app, accepting("k1", "gzip")).await;
    let wrong = send(&app, accepting("k1", "identity")).await;
    assert_eq!(wrong.header("Content-Encoding"), Some("gzip"), "why it belongs outside");
}

/// The accounts that may come in, and how often they were asked for.
#[derive(Clone, Default)]
struct Doorman {
    asked: Arc<AtomicUsize>,
    revoked: Arc<AtomicUsize>,
}

impl Doorman {
    /// Tokens are `Bearer <account>`; the account becomes an extension. After a revocation nobody comes in.
    async fn check(self, mut request: Request, next: Next) -> Response {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        match token.and_then(|token| token.strip_prefix("Bearer ")).map(str::to_owned) {
            None => StatusCode::UNAUTHORIZED.into_response(),
            Some(_) if self.revoked.load(Ordering::SeqCst) > 0 => StatusCode::FORBIDDEN.into_response(),
            Some(account) => {
                request.extensions_mut().insert(Account(account));
                next.run(request).await
            }
        }
    }
}

#[derive(Clone)]
struct Account(String);

fn guarded(rig: &Rig, doorman: &Doorman) -> Router {
    let scope = Scope::from_fn(|parts| parts.extensions.get::<Account>().map(|account| ScopeId::new([&account.0])));
    let layer = IdempotencyLayer::new(rig.store.clone(), scope);
    let doorman = doorman.clone();
    rig.counting(layer).layer(from_fn(move |request, next| doorman.clone().check(request, next)))
}

fn by(account: Option<&str>) -> Request {
    let mut request = charge("k1");
    if let Some(account) = account {
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {account}")).unwrap());
    }
    request
}

#[tokio::test]
async fn case_95_a_revoked_caller_gets_no_replay() {
    let rig = Rig::new();
    let doorman = Doorman::default();
    let app = guarded(&rig, &doorman);
    assert_eq!(send(&app, by(Some("a"))).await.text(), "run 1");
    assert!(send(&app, by(Some("a"))).await.is_replay());
    doorman.revoked.store(1, Ordering::SeqCst);
    let refused = send(&app, by(Some("a"))).await;
    assert_eq!((refused.status, refused.is_replay(), refused.body.len()), (403, false, 0));
    assert_eq!(doorman.asked.load(Ordering::SeqCst), 3, "authentication runs on every attempt");
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn case_95_a_401_is_not_recorded_under_the_key() {
    let rig = Rig::new();
    let app = guarded(&rig, &Doorman::default());
    assert_eq!(send(&app, by(None)).await.status, 401);
    assert_eq!((rig.store.all_calls(), rig.records()), (0, 0));
    let right = send(&app, by(Some("a"))).await;
    assert_eq!((right.status, right.text(), right.is_replay()), (201, "run 1", false));
    assert_eq!(send(&app, by(Some("b"))).await.text(), "run 2", "and each account has keys of its own");
}

#[tokio::test]
async fn case_95_even_a_401_from_inside_is_not_recorded() {
    let rig = Rig::new();
    let doorman = Doorman::default();
    let inner = rig.handler(|run| format!("run {run}"));
    let app = inner.layer(from_fn(move |request, next| doorman.clone().check(request, next))).layer(rig.layer());
    assert_eq!(send(&app, by(None)).await.status, 401);
    let right = send(&app, by(Some("a"))).await;
    assert_eq!((right.status, right.text()), (200, "run 1"), "credentials are not part of what must be repeated");
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin([
            HeaderValue::from_static("https://a.example.com"),
            HeaderValue::from_static("https://b.example.com"),
        ])
        .allow_methods([Method::POST])
        .allow_headers([HeaderName::from_static("idempotency-key")])
        .expose_headers([HeaderName::from_static("idempotent-replayed"), RETRY_AFTER])
}

fn from_origin(key: &str, origin: &'static str) -> Request {
    let mut request = charge(key);
    request.headers_mut().insert(ORIGIN, HeaderValue::from_static(origin));
    request
}

#[tokio::test]
async fn case_10_cors_outside_lets_browsers_send_the_key_and_see_the_mark() {
    let rig = Rig::new();
    let app = rig.counting(rig.layer()).layer(cors());
    let preflight = http::Request::options("/charge")
        .header(ORIGIN, "https://a.example.com")
        .header(ACCESS_CONTROL_REQUEST_METHOD, "POST")
        .header(ACCESS_CONTROL_REQUEST_HEADERS, "idempotency-key");
    let preflight = send(&app, preflight.body(Body::empty()).unwrap()).await;
    assert_eq!((preflight.status, preflight.header("Access-Control-Allow-Headers")), (200, Some("idempotency-key")));
    assert_eq!((rig.runs.count(), rig.store.all_calls()), (0, 0));

    send(&app, from_origin("k1", "https://a.example.com")).await;
    // From another origin, as after a move of the page: the mark of today's origin, not the recorded one.
    let again = send(&app, from_origin("k1", "https://b.example.com")).await;
    assert!(again.is_replay());
    assert_eq!(again.headers.get_all("access-control-allow-origin").iter().count(), 1);
    assert_eq!(again.header("Access-Control-Allow-Origin"), Some("https://b.example.com"));
    assert_eq!(again.header("Access-Control-Expose-Headers"), Some("idempotent-replayed,retry-after"));
    let refused = send(&app, from_origin("a,b", "https://b.example.com")).await;
    assert_eq!(
        refused.header("Access-Control-Allow-Origin"),
        Some("https://b.example.com"),
        "refusals can be read too"
    );
}

#[tokio::test]
async fn cors_inside_does_not_replay_the_first_origin() {
    let rig = Rig::new();
    let app = rig.handler(|run| format!("run {run}")).layer(cors()).layer(rig.layer());
    let first = send(&app, from_origin("k1", "https://a.example.com")).await;
    assert_eq!(first.header("Access-Control-Allow-Origin"), Some("https://a.example.com"));
    let again = send(&app, from_origin("k1", "https://b.example.com")).await;
    assert!(again.is_replay());
    assert_eq!(again.header("Access-Control-Allow-Origin"), None, "which is why it belongs outside");
}

#[tokio::test]
async fn catch_panic_outside_has_nothing_to_catch_under_a_key() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| -> StatusCode { panic!("run {run}") }).layer(CatchPanicLayer::new());
    let first = send(&app, charge("k1")).await;
    assert_eq!((first.status, first.problem()), (500, Some("handler-panicked")));
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("outcome-unknown"));
    let keyless = http::Request::post("/charge").body(Body::empty()).unwrap();
    let caught = send(&app, keyless).await;
    assert_eq!((caught.status, caught.problem()), (500, None), "without a key it is as if the layer were not there");
}

#[tokio::test]
async fn catch_panic_inside_makes_it_an_answer_that_is_in_doubt() {
    let rig = Rig::new();
    let app = rig.handler(|run| -> StatusCode { panic!("run {run}") }).layer(CatchPanicLayer::new()).layer(rig.layer());
    assert_eq!(send(&app, charge("k1")).await.status, 500);
    assert_eq!(rig.state("k1").await, Some(State::InDoubt));
    assert!(send(&app, charge("k1")).await.is_replay());
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn layers_outside_see_the_reason_of_an_answer() {
    let rig = Rig::new();
    let count = |reasons: &[&str]| reasons.iter().map(|reason| (*reason).to_owned()).collect::<Vec<_>>();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let app = rig.counting(rig.layer()).layer(from_fn(move |request: Request, next: Next| {
        let log = Arc::clone(&log);
        async move {
            let response = next.run(request).await;
            let refusal = response.extensions().get::<Refusal>().map(Refusal::problem_type);
            let replayed = response.extensions().get::<Replayed>().map(|_| "replayed");
            log.lock().unwrap().push(refusal.or(replayed).unwrap_or("ran").to_owned());
            response
        }
    }));
    for request in [charge("k1"), charge("k1"), charge_of("k1", 99), charge("a,b")] {
        send(&app, request).await;
    }
    let expected = count(&["ran", "replayed", "idempotency-key-reused", "idempotency-key-invalid"]);
    assert_eq!(*seen.lock().unwrap(), expected);
}

/// A service that must be polled ready before each call, and whose clones must be polled for themselves.
#[derive(Debug, Default)]
struct Picky {
    ready: bool,
}

impl Clone for Picky {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request> for Picky {
    type Response = Response;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being polled ready");
        std::future::ready(Ok("ok".into_response()))
    }
}

#[tokio::test]
async fn the_clone_that_was_polled_ready_is_the_one_that_is_called() {
    let rig = Rig::new();
    let mut app = rig.layer().layer(Picky::default());
    for key in ["k1", "k2", "k1"] {
        let answer = app.ready().await.unwrap().call(charge(key)).await.unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.extensions().get::<Refusal>());
    }
    let keyless = http::Request::post("/charge").body(Body::empty()).unwrap();
    assert_eq!(app.ready().await.unwrap().call(keyless).await.unwrap().status(), 200);
    // Ready for one request, and asked again by another clone of the layer.
    let mut other = app.clone();
    assert_eq!(other.ready().await.unwrap().call(charge("k3")).await.unwrap().status(), 200);
}

/// An inner service that says how many of its requests run at once.
fn busy(gate: Arc<Semaphore>, running: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> impl Handler {
    service_fn(move |_: Request| {
        let (gate, running, most) = (Arc::clone(&gate), Arc::clone(&running), Arc::clone(&most));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _permit = gate.acquire().await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Response::new(Body::from("ok")))
        }
    })
}

trait Handler: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static {}
impl<S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static> Handler
    for S
{
}

#[tokio::test]
async fn it_stands_over_a_concurrency_limit() {
    let rig = Rig::new();
    let (gate, running, most) = (Arc::new(Semaphore::new(0)), Arc::default(), Arc::default());
    let inner = busy(Arc::clone(&gate), Arc::clone(&running), Arc::clone(&most));
    let app = rig.layer().layer(ConcurrencyLimitLayer::new(2).layer(inner));
    let requests: Vec<_> = (0..6)
        .map(|n| {
            let app = app.clone();
            tokio::spawn(async move { app.oneshot(charge(&format!("k{n}"))).await.unwrap().status() })
        })
        .collect();
    while running.load(Ordering::SeqCst) < 2 {
        assert!(requests.iter().any(|request| !request.is_finished()), "none of them ran");
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.load(Ordering::SeqCst), 2);
    gate.add_permits(6);
    for request in requests {
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), request).await.unwrap().unwrap(), 200);
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
    // Each permit was given back, by replays and refusals too.
    let mut app = app;
    for key in ["k0", "k0", "a,b", "k0", "a,b", "k9"] {
        let answer = tokio::time::timeout(Duration::from_secs(5), app.ready().await.unwrap().call(charge(key))).await;
        assert!(answer.unwrap().is_ok(), "{key}");
    }
}

#[tokio::test]
async fn it_stands_over_a_buffer() {
    let rig = Rig::new();
    let runs = rig.runs.clone();
    let inner = service_fn(move |_: Request| {
        let run = runs.begin();
        async move { Ok::<_, Infallible>(Response::new(Body::from(format!("run {run}")))) }
    });
    let mut app = rig.layer().layer(Buffer::new(inner, 1));
    for (key, text) in [("k1", "run 1"), ("k2", "run 2"), ("k1", "run 1"), ("k3", "run 3")] {
        let ready = tokio::time::timeout(Duration::from_secs(5), app.ready()).await.unwrap().unwrap();
        let answer = ready.call(charge(key)).await.unwrap();
        let body = axum::body::to_bytes(Body::new(answer.into_body()), 100).await.unwrap();
        assert_eq!(body, text);
    }
}

fn nested(rig: &Rig, layer: IdempotencyLayer<TestStore>) -> Router {
    let runs = rig.runs.clone();
    let inner = Router::new().route("/x", post(async move || format!("run {}", runs.begin()))).layer(layer);
    Router::new().nest("/a", inner.clone()).nest("/b", inner)
}

#[tokio::test]
async fn a_key_on_another_route_is_422_also_inside_a_nested_router() {
    let rig = Rig::new();
    let app = nested(&rig, rig.layer());
    let to = |path: &str| http::Request::post(path).header(KEY, "k1").body(Body::from("x")).unwrap();
    assert_eq!(send(&app, to("/a/x")).await.text(), "run 1");
    let other = send(&app, to("/b/x")).await;
    assert_eq!((other.status, other.problem()), (422, Some("idempotency-key-reused")));
    assert_eq!(send(&app, to("/a/x?a=1")).await.problem(), Some("idempotency-key-reused"));
    assert!(send(&app, to("/a/x")).await.is_replay());
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn two_layers_over_one_store_share_their_keys() {
    let rig = Rig::new();
    let answer = |name: &'static str| async move || name;
    let app = Router::new()
        .route("/charge", post(answer("charged")).layer(rig.layer()))
        .route("/refund", post(answer("refunded")).layer(rig.layer()));
    assert_eq!(send(&app, charge("k1")).await.text(), "charged");
    let mut refund = charge("k1");
    *refund.uri_mut() = http::Uri::from_static("/refund");
    assert_eq!(send(&app, refund).await.problem(), Some("idempotency-key-reused"), "no silent second operation");
}

#[tokio::test]
async fn case_05_a_429_from_a_limiter_outside_does_not_burn_the_key() {
    let rig = Rig::new();
    let left = Arc::new(AtomicUsize::new(1));
    let limiter = {
        let left = Arc::clone(&left);
        from_fn(move |request: Request, next: Next| {
            let allowed = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            async move { if allowed { next.run(request).await } else { StatusCode::TOO_MANY_REQUESTS.into_response() } }
        })
    };
    let app = rig.counting(rig.layer()).layer(limiter);
    assert_eq!(send(&app, charge("k0")).await.text(), "run 1");
    assert_eq!(send(&app, charge("k1")).await.status, 429);
    assert_eq!(rig.state("k1").await, None, "the layer never saw it");
    left.store(6, Ordering::SeqCst);
    let second = send(&app, charge("k1")).await;
    assert_eq!((second.status, second.text(), second.is_replay()), (201, "run 2", false));
    for _ in 0..5 {
        assert!(send(&app, charge("k1")).await.is_replay());
    }
    assert_eq!(
        send(&app, charge("k1")).await.status,
        429,
        "replays count against the limit, because it stands outside"
    );
}

#[tokio::test]
async fn case_05_a_429_from_inside_frees_the_key() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |run| if run == 1 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::CREATED });
    assert_eq!(send(&app, charge("k1")).await.status, 429);
    let second = send(&app, charge("k1")).await;
    assert_eq!((second.status, second.is_replay()), (201, false));
}
