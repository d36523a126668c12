//! Clients that leave: before, during and after the work; over HTTP/1 and HTTP/2; and outer timeouts.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::{InFlight, Key, Lease, RecordId, ScopeId, State, Store as _};
use idempotency_memory::MemoryStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Scope};

const TOOK: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Service {
    store: MemoryStore,
    layer: IdempotencyLayer<MemoryStore>,
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
}

impl Service {
    fn new() -> Self {
        let store = MemoryStore::new();
        let layer = IdempotencyLayer::new(store.clone(), Scope::global())
            .lease(Lease::new(Duration::from_millis(500)).unwrap())
            .max_response(1024);
        Self { store, layer, begun: Arc::default(), ended: Arc::default() }
    }

    fn app(&self) -> Router {
        let service = self.clone();
        let charge = async move || {
            service.begun.fetch_add(1, Ordering::SeqCst);
            sleep(TOOK).await;
            (StatusCode::CREATED, format!("charge {}", service.ended.fetch_add(1, Ordering::SeqCst) + 1))
        };
        let service = self.clone();
        let long = async move || {
            service.begun.fetch_add(1, Ordering::SeqCst);
            let ended = Arc::clone(&service.ended);
            let chunks = futures_util::stream::unfold(0, move |number| {
                let ended = Arc::clone(&ended);
                async move {
                    sleep(Duration::from_millis(20)).await;
                    if number == 10 {
                        ended.fetch_add(1, Ordering::SeqCst);
                        return None;
                    }
                    let chunk = Frame::data(Bytes::from(vec![b'x'; 1000]));
                    Some((Ok::<_, std::io::Error>(chunk), number + 1))
                }
            });
            Response::new(Body::new(StreamBody::new(Box::pin(chunks))))
        };
        let broken = async || {
            let chunks =
                [Ok(Frame::data(Bytes::from_static(b"the first half"))), Err(std::io::Error::other("no more"))];
            Response::new(Body::new(StreamBody::new(futures_util::stream::iter(chunks))))
        };
        Router::new()
            .route("/broken", post(broken))
            .route("/charge", post(charge))
            .route("/long", post(long))
            .layer(self.layer.clone())
    }

    async fn serve(&self) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let app = self.app();
        tokio::spawn(async move { axum::serve(listener, app).await });
        addr
    }

    async fn post(&self, path: &str) -> Response<Body> {
        let request = Request::post(path).header("idempotency-key", "k").body(Body::from("{}\r\n")).unwrap();
        self.app().oneshot(request).await.unwrap()
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }

    async fn until_begun(&self) {
        let begun = async {
            while self.begun() == 0 {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(Duration::from_secs(5), begun).await.expect("the handler begins");
    }

    async fn eventually(&self, wanted: State) {
        let reached = async {
            while self.store.inspect(&id()).await.unwrap().map(|entry| entry.state) != Some(wanted) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(5), reached).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
    }

    /// The work that a client left behind ran to its end, once, and its retry gets the answer.
    async fn assert_ran_once_and_replays(&self) {
        self.eventually(State::Completed).await;
        let again = self.post("/charge").await;
        assert_eq!(again.status(), StatusCode::CREATED);
        assert_eq!(again.headers()["idempotent-replayed"], "true");
        assert_eq!(again.into_body().collect().await.unwrap().to_bytes(), "charge 1");
        assert_eq!(self.begun(), 1);
    }
}

fn id() -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse("k").unwrap())
}

const REQUEST: &[u8] = b"POST /charge HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 4\r\n\r\n{}\r\n";

#[tokio::test]
async fn a_dropped_future_runs_on() {
    let service = Service::new();
    let dropped = timeout(Duration::from_millis(50), service.post("/charge")).await;
    assert!(dropped.is_err() && service.begun() == 1);
    service.assert_ran_once_and_replays().await;
}

#[tokio::test]
async fn without_a_key_a_dropped_future_is_dropped() {
    let service = Service::new();
    let request = Request::post("/charge").body(Body::empty()).unwrap();
    let dropped = timeout(Duration::from_millis(50), service.app().oneshot(request)).await;
    assert!(dropped.is_err() && service.begun() == 1);
    sleep(TOOK * 2).await;
    assert_eq!(service.ended(), 0);
}

#[tokio::test]
async fn case_44_an_http1_client_that_hangs_up_does_not_stop_the_work() {
    let service = Service::new();
    let mut client = TcpStream::connect(service.serve().await).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    service.until_begun().await;
    drop(client);
    service.assert_ran_once_and_replays().await;
}

#[tokio::test]
async fn a_connection_reset_does_not_stop_the_work() {
    let service = Service::new();
    let mut client = TcpStream::connect(service.serve().await).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    service.until_begun().await;
    client.set_zero_linger().unwrap(); // closing now sends RST
    drop(client);
    service.assert_ran_once_and_replays().await;
}

#[tokio::test]
async fn an_http2_stream_reset_does_not_stop_the_work() {
    let service = Service::new();
    let addr = service.serve().await;
    let stream = TcpStream::connect(addr).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{addr}/charge")).header("idempotency-key", "k").body(()).unwrap();
    let (response, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"{}\r\n"), true).unwrap();
    let waiting = tokio::spawn(response);
    service.until_begun().await;
    body.send_reset(h2::Reason::CANCEL);
    waiting.abort();
    service.assert_ran_once_and_replays().await;
}

#[tokio::test]
async fn an_outer_timeout_does_not_stop_the_work() {
    let service = Service::new();
    let app = tower::timeout::Timeout::new(service.app(), Duration::from_millis(50));
    let request = Request::post("/charge").header("idempotency-key", "k").body(Body::from("{}\r\n")).unwrap();
    assert!(app.oneshot(request).await.is_err(), "timed out");
    service.assert_ran_once_and_replays().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_its_body_is_complete_ran_nothing() {
    let service = Service::new();
    let mut client = TcpStream::connect(service.serve().await).await.unwrap();
    client.write_all(&REQUEST[..REQUEST.len() - 1]).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    drop(client);
    sleep(Duration::from_millis(100)).await;
    assert_eq!((service.begun(), service.store.len()), (0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_during_a_streamed_response_does_not_stop_it() {
    let service = Service::new();
    let mut client = TcpStream::connect(service.serve().await).await.unwrap();
    let request = b"POST /long HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 4\r\n\r\n{}\r\n";
    client.write_all(request).await.unwrap();
    let mut some = [0; 1200];
    client.read_exact(&mut some).await.unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200"));
    drop(client);
    service.eventually(State::Tombstone).await;
    assert_eq!(service.ended(), 1, "read to its end");
    assert_eq!(service.post("/long").await.status(), StatusCode::GONE);
    assert_eq!(service.begun(), 1);
}

#[tokio::test]
async fn a_response_that_the_handler_breaks_off_reaches_the_client_as_far_as_it_came() {
    let service = Service::new();
    let mut client = TcpStream::connect(service.serve().await).await.unwrap();
    let request = b"POST /broken HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 4\r\n\r\n{}\r\n";
    client.write_all(request).await.unwrap();
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got).await; // ends with a reset or without the last chunk
    let got = String::from_utf8(got).unwrap();
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("the first half") && !got.contains("\r\n0\r\n"), "{got:?}");
    service.eventually(State::InDoubt).await;
}

#[tokio::test]
async fn a_response_of_known_length_is_recorded_before_its_last_byte() {
    let store = FaultyStore::new(MemoryStore::new());
    let layer = IdempotencyLayer::new(store.clone(), Scope::global()).max_response(1024);
    let known = async || [vec![b'x'; 2000], b" the end".to_vec()].concat(); // above what is stored
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let app = Router::new().route("/charge", post(known)).layer(layer);
    tokio::spawn(async move { axum::serve(listener, app).await });

    store.next(Op::Complete, Fault::Late(Duration::from_millis(100))); // recording takes its time
    let mut client = TcpStream::connect(addr).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"xxxxx the end") {
        client.read_buf(&mut got).await.unwrap();
    }
    assert!(String::from_utf8(got).unwrap().contains("content-length: 2008"));
    let entry = store.inspect(&id()).await.unwrap().unwrap();
    assert_eq!(entry.state, State::Tombstone, "whoever has it all may ask again at once");
}

#[tokio::test]
async fn drain_waits_for_a_response_that_is_still_read() {
    let service = Service::new();
    let response = service.post("/long").await;
    assert!(!service.layer.engine().drain(Duration::from_millis(20)).await, "its end is not recorded");
    response.into_body().collect().await.unwrap();
    assert!(service.layer.engine().drain(Duration::from_secs(5)).await);
    service.eventually(State::Tombstone).await;
}

#[tokio::test]
async fn a_waiting_duplicate_whose_client_leaves_runs_nothing() {
    let store = MemoryStore::new();
    let wait = InFlight::Wait(Duration::from_secs(10));
    let layer = IdempotencyLayer::new(store.clone(), Scope::global()).in_flight(wait);
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let refusing = async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        sleep(TOOK).await;
        StatusCode::BAD_REQUEST // frees the key
    };
    let app = Router::new().route("/", post(refusing)).layer(layer);
    let send = || {
        let request = Request::post("/").header("idempotency-key", "k").body(Body::empty()).unwrap();
        app.clone().oneshot(request)
    };
    let first = tokio::spawn(send());
    sleep(Duration::from_millis(30)).await;
    assert!(timeout(Duration::from_millis(50), send()).await.is_err(), "it waits, and leaves");
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::BAD_REQUEST);
    sleep(TOOK * 2).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(store.inspect(&id()).await.unwrap().unwrap().state, State::Released);
}

#[tokio::test]
async fn drain_waits_for_work_that_a_client_left_behind() {
    let service = Service::new();
    let dropped = timeout(Duration::from_millis(50), service.post("/charge")).await;
    assert!(dropped.is_err());
    assert!(!service.layer.engine().drain(Duration::from_millis(10)).await, "it runs");
    assert!(service.layer.engine().drain(Duration::from_secs(5)).await);
    assert_eq!(service.ended(), 1);
}

#[test]
fn at_the_shutdown_of_the_runtime_work_is_dropped_once_and_never_released() {
    let service = Service::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let task = runtime.spawn({
        let service = service.clone();
        async move { service.post("/charge").await }
    });
    runtime.block_on(service.until_begun());
    runtime.shutdown_timeout(Duration::from_millis(50));
    drop(task);
    assert_eq!(service.ended(), 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let entry = runtime.block_on(service.store.inspect(&id())).unwrap().unwrap();
    assert_eq!(entry.state, State::InFlight, "left to its lease");
}
