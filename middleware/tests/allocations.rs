//! What the layer allocates, counted.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use http_body_util::{BodyExt as _, Limited};
use idempotency_memory::MemoryStore;
use tower::Service as _;
use tower::util::MapResponseLayer;
use tower_idempotency::{IdempotencyLayer, Scope};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// The members of this body come in no order.
const BODY: &str = r#"{"currency": "EUR", "amount": 1250, "to": "FR14", "from": "DE89"}"#;

async fn charge(Json(charge): Json<serde_json::Value>) -> (StatusCode, Json<serde_json::Value>) {
    (StatusCode::CREATED, Json(charge))
}

fn router() -> Router {
    Router::new().route("/charge", post(charge))
}

/// The blocks that most requests allocate in a service that is warm, from when they are made to when their answer was read. Now and then
/// one more is there: a store grows.
async fn blocks(mut app: Router, key: impl Fn(u32) -> Option<String>) -> u64 {
    let mut counted = Vec::new();
    for round in 0..501 {
        let request = Request::post("/charge").header("content-type", "application/json");
        let request = key(round).into_iter().fold(request, |request, key| request.header("idempotency-key", key));
        let request = request.body(Body::from(BODY)).unwrap();
        let before = dhat::HeapStats::get().total_blocks;
        let response = app.call(request).await.unwrap(); // a router is always ready
        assert_eq!(response.status(), StatusCode::CREATED);
        response.into_body().collect().await.unwrap();
        counted.push(dhat::HeapStats::get().total_blocks - before);
    }
    counted.sort_unstable();
    counted[counted.len() / 2]
}

#[tokio::test]
async fn a_request_without_a_key_allocates_nothing_of_ours_and_one_with_a_key_little() {
    let _profiler = dhat::Profiler::builder().testing().build();
    // axum boxes the body of any layer that changes the body's type, and a clone of any layer that holds something. This one
    // does just that.
    let limit = std::hint::black_box(1 << 20);
    let other_body =
        MapResponseLayer::new(move |response: Response<Body>| response.map(|body| Limited::new(body, limit)));
    let bare = blocks(router().layer(other_body), |_| None).await;
    let protected = router().layer(IdempotencyLayer::new(MemoryStore::new(), Scope::global()));
    assert_eq!(blocks(protected.clone(), |_| None).await, bare);
    let first = blocks(protected.clone(), |round| Some(format!("k-{round}"))).await;
    assert!((bare + 1..=bare + FIRST).contains(&first), "{} blocks more for a first request", first - bare);
    // No handler runs, and what that allocates is left out.
    let replay = blocks(protected, |_| Some("k-0".to_owned())).await;
    assert!(replay <= bare, "{replay} blocks for a replay, {bare} for the bare service");
}

/// The future, the attempt, the store's record, the response as it is recorded, and its body's place while it is read. The other three are
/// axum's and http's: the body that is made anew, and the attempt and its place among the request's extensions.
const FIRST: u64 = 8;
