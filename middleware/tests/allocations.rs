//! What the layer allocates, counted.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use http_body_util::{BodyExt as _, Limited};
use idempotency_memory::MemoryStore;
use tower::Service as _;
use tower::util::MapResponseLayer;
use tower_idempotency::{IdempotencyLayer, Scope};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

async fn charge() -> StatusCode {
    StatusCode::CREATED
}

fn router() -> Router {
    Router::new().route("/charge", post(charge))
}

/// The blocks that one request allocates in a service that is warm.
async fn blocks(mut app: Router, key: Option<&str>) -> u64 {
    let mut counted = 0;
    for round in 0..3 {
        let request = Request::post("/charge");
        let request =
            key.into_iter().fold(request, |request, key| request.header("idempotency-key", format!("{key}-{round}")));
        let request = request.body(Body::from("{}")).unwrap();
        let before = dhat::HeapStats::get().total_blocks;
        let response = app.call(request).await.unwrap(); // a router is always ready
        assert_eq!(response.status(), StatusCode::CREATED);
        response.into_body().collect().await.unwrap();
        counted = dhat::HeapStats::get().total_blocks - before;
    }
    counted
}

#[tokio::test]
async fn a_request_without_a_key_allocates_nothing_of_ours_and_one_with_a_key_little() {
    let _profiler = dhat::Profiler::builder().testing().build();
    // axum boxes the body of any layer that changes the body's type, and a clone of any layer that holds something. This one
    // does just that.
    let limit = std::hint::black_box(1 << 20);
    let other_body =
        MapResponseLayer::new(move |response: Response<Body>| response.map(|body| Limited::new(body, limit)));
    let bare = blocks(router().layer(other_body), None).await;
    let layer = IdempotencyLayer::new(MemoryStore::new(), Scope::global());
    let protected = router().layer(layer);
    assert_eq!(blocks(protected.clone(), None).await, bare);
    let keyed = blocks(protected, Some("k")).await;
    // Three of them are the request's own: its header map and the key's text.
    assert!((bare + 1..=bare + 20).contains(&keyed), "{} blocks more with a key", keyed - bare);
}
