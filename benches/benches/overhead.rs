//! What the layer adds to a request, in process: no key, first request, replay, conflict, over each store, as ratios to the bare
//! service in one run. `cargo bench -p idempotency-benches --bench overhead`; `-- --quick` runs it for a moment.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use idempotency::{Engine, Settings, Store};
use idempotency_benches::{Subject, compare, table, timed};
use idempotency_memory::MemoryStore;
use idempotency_sqlx::SqliteStore;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Scope};

#[derive(Deserialize, Serialize)]
struct Charge {
    amount: u64,
    currency: String,
    from: String,
    to: String,
    reference: String,
}

async fn charge(Json(charge): Json<Charge>) -> (StatusCode, Json<Charge>) {
    (StatusCode::CREATED, Json(charge))
}

const BODY: &str = r#"{"amount":1250,"currency":"EUR","from":"DE89370400440532013000","to":"FR1420041010050500013M02606","reference":"invoice 2026-11-0042, thank you for your business and see you again soon, best regards"}"#;

fn request(key: Option<&str>) -> Request<Body> {
    let request = Request::post("/charge").header("content-type", "application/json");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    request.body(Body::from(BODY)).unwrap()
}

async fn send(app: &Router, request: Request<Body>, expected: StatusCode) {
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), expected);
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
}

fn app() -> Router {
    Router::new().route("/charge", post(charge))
}

/// The four requests of a protected service, over one store.
fn subjects<'r, St: Store>(name: &str, store: St, n: u32, runtime: &'r Runtime, subjects: &mut Vec<Subject<'r>>) {
    let engine = Engine::new(store, Settings::default());
    let layer = IdempotencyLayer::with_engine(engine.clone(), Scope::global());
    let app = app().layer(layer);
    let next = Arc::new(AtomicU64::new(0));

    let protected = app.clone();
    subjects.push(Subject::new(&format!("{name}: no key"), n, runtime, async move |n| {
        timed(async {
            for _ in 0..n {
                send(&protected, request(None), StatusCode::CREATED).await;
            }
        })
        .await
    }));

    let protected = app.clone();
    subjects.push(Subject::new(&format!("{name}: first request"), n, runtime, async move |n| {
        let requests: Vec<_> =
            (0..n).map(|_| request(Some(&format!("first-{}", next.fetch_add(1, Ordering::Relaxed))))).collect();
        timed(async {
            for request in requests {
                send(&protected, request, StatusCode::CREATED).await;
            }
        })
        .await
    }));

    let protected = app.clone();
    subjects.push(Subject::new(&format!("{name}: replay"), n, runtime, async move |n| {
        send(&protected, request(Some("replayed")), StatusCode::CREATED).await;
        timed(async {
            for _ in 0..n {
                send(&protected, request(Some("replayed")), StatusCode::CREATED).await;
            }
        })
        .await
    }));

    // The same request is in flight for as long as the bench runs.
    let slow = Router::new().route("/charge", post(async || std::future::pending::<StatusCode>().await));
    let slow = slow.layer(IdempotencyLayer::with_engine(engine, Scope::global()));
    runtime.spawn(async move { send(&slow, request(Some("conflict")), StatusCode::CREATED).await });
    subjects.push(Subject::new(&format!("{name}: conflict"), n, runtime, async move |n| {
        timed(async {
            for _ in 0..n {
                send(&app, request(Some("conflict")), StatusCode::CONFLICT).await;
            }
        })
        .await
    }));
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, in_process, durable) = if quick { (3, 100, 10) } else { (41, 4000, 200) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("bench.sqlite").display());
    let sqlite = runtime.block_on(async {
        SqliteStore::migrate(&url).await.unwrap();
        SqliteStore::open(&url).await.unwrap()
    });

    let bare = app();
    let mut all = vec![Subject::new("bare", in_process, &runtime, async move |n| {
        timed(async {
            for _ in 0..n {
                send(&bare, request(Some("not looked at")), StatusCode::CREATED).await;
            }
        })
        .await
    })];
    subjects("in process", MemoryStore::new(), in_process, &runtime, &mut all);
    subjects("SQLite, durable", sqlite, durable, &runtime, &mut all);
    println!("{}", table(&compare(rounds, &mut all)));
}
