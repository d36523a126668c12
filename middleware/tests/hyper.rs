//! The layer over bare hyper, without a framework.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::http::response::Parts;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use idempotency_memory::MemoryStore;
use tokio::net::{TcpListener, TcpStream};
use tower::{ServiceBuilder, service_fn};
use tower_idempotency::body::RequestBody;
use tower_idempotency::{Attempt, IdempotencyLayer, Scope};

async fn serve() -> SocketAddr {
    let effects = Arc::new(AtomicU32::new(0));
    let charge = service_fn(move |request: Request<RequestBody<Incoming>>| {
        let effects = Arc::clone(&effects);
        async move {
            let attempt = request.extensions().get::<Attempt>().map(Attempt::number);
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let number = effects.fetch_add(1, Ordering::SeqCst) + 1;
            let text = format!("charge {number} of {} in attempt {attempt:?}", String::from_utf8_lossy(&body));
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
        }
    });
    let service = ServiceBuilder::new()
        // hyper's own body cannot be made from bytes, so the request's body is wrapped first.
        .map_request(|request: Request<Incoming>| request.map(RequestBody::new))
        .layer(IdempotencyLayer::new(MemoryStore::new(), Scope::global()))
        .service(charge);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    addr
}

async fn post(addr: SocketAddr, key: Option<&str>, body: &'static str) -> (Parts, String) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("/charge").header("host", "x");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    let response = client.send_request(request.body(Full::new(Bytes::from(body))).unwrap());
    let (parts, body) = response.await.unwrap().into_parts();
    (parts, String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap())
}

#[tokio::test]
async fn a_bare_hyper_service_is_protected() {
    let addr = serve().await;
    let (_, first) = post(addr, Some("k"), "10").await;
    assert_eq!(first, "charge 1 of 10 in attempt Some(1)");
    let (again, body) = post(addr, Some("k"), "10").await;
    assert_eq!(body, first);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let (other, _) = post(addr, Some("k"), "99").await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_request_without_a_key_is_handed_through() {
    let addr = serve().await;
    for number in 1..=2 {
        let (_, body) = post(addr, None, "10").await;
        assert_eq!(body, format!("charge {number} of 10 in attempt None"));
    }
}
