//! Run with `cargo run --release --bin business-key`: two routes that do the same work, once.
//!
//! A customer pays. The browser says so with `POST /orders/42/complete`, and the payment provider, at the same
//! moment, with `POST /webhook` and `{"id": "evt_1", "order": 42}`. Both make the shop capture the payment. No header
//! can show that they are the same, because the two have never met; what they share is the order. So the key is made
//! of the business: `capture:42`.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::request::Parts;
use http::{Request, StatusCode, header};
use idempotency::time::InvalidDuration;
use idempotency::{Engine, InFlight, Settings};
use idempotency_memory::MemoryStore;
use serde::{Deserialize, Serialize};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_idempotency::{FingerprintRule, IdempotencyLayer, KeyRequired, Scope};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for protection in [Protection::On, Protection::Off] {
        let shop = Shop::default();
        let statuses = fire(app(&shop, protection)?, ORDERS).await?;
        report(protection, &shop, &statuses);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Protection {
    On,
    Off,
}

/// The shop's two routes, around one engine: what a record says, it says to both.
fn app(shop: &Shop, protection: Protection) -> Result<Router, InvalidDuration> {
    // Neither caller gains from a 409: a browser shows it to the customer, a provider counts it as a failure. So the
    // second waits.
    let settings = Settings::default().in_flight(InFlight::Wait(Duration::from_secs(10)));
    let engine = Engine::new(MemoryStore::new(), settings.checked()?);
    let once = |route: MethodRouter<Shop>, order: fn(&Parts, &Bytes) -> Option<u64>| match protection {
        Protection::On => route.layer(capture_once(engine.clone(), order)),
        Protection::Off => route,
    };
    let routes = Router::new()
        .route("/orders/{id}/complete", once(post(complete), order_of_path))
        .route("/webhook", once(post(webhook), order_of_body));
    Ok(routes.with_state(shop.clone()))
}

fn capture_once(
    engine: Engine<MemoryStore>,
    order: fn(&Parts, &Bytes) -> Option<u64>,
) -> IdempotencyLayer<MemoryStore> {
    // One scope for both, or they would not share a record: the order is the shop's, whoever speaks of it. That makes
    // what stands outside of this layer all the more important: whether this customer owns the order, and whether the
    // provider signed the event.
    IdempotencyLayer::with_engine(engine, Scope::global())
        .key_from_fn(move |parts, body| order(parts, body).map(|order| format!("capture:{order}")))
        // A request whose order cannot be told is refused. Optional, it would pass by the protection.
        .key_required(KeyRequired::Required)
        // What is left is nothing: whatever has this key is the same work.
        .fingerprint(FingerprintRule::default().without_route().without_media_type().without_body())
}

/// `/orders/42/complete`
fn order_of_path(parts: &Parts, _body: &Bytes) -> Option<u64> {
    parts.uri.path().strip_prefix("/orders/")?.strip_suffix("/complete")?.parse().ok()
}

/// `{"id": "evt_1", "order": 42}`. The event's own id would be the wrong key: it names the message, not the work.
fn order_of_body(_parts: &Parts, body: &Bytes) -> Option<u64> {
    serde_json::from_slice(body).ok().map(|event: Event| event.order)
}

#[derive(Deserialize)]
struct Event {
    order: u64,
}

/// Whoever comes second gets the answer that the other route gave. So both give the same one, and it suits both: the
/// browser reads the capture in it, and the provider wants any 2xx. (A redirect would please the browser and be a
/// failure to the provider.)
#[derive(Serialize)]
struct Captured {
    order: u64,
    capture: String,
}

async fn complete(State(shop): State<Shop>, Path(order): Path<u64>) -> Json<Captured> {
    Json(shop.capture(order).await)
}

async fn webhook(State(shop): State<Shop>, Json(event): Json<Event>) -> Json<Captured> {
    Json(shop.capture(event.order).await)
}

/// How often each order was captured.
#[derive(Clone, Default)]
struct Shop(Arc<Mutex<HashMap<u64, u32>>>);

impl Shop {
    /// Looks first, as careful code does. That it is not enough is shown by the run without protection: two look
    /// before either has captured.
    async fn capture(&self, order: u64) -> Captured {
        if !self.with(|captures| captures.contains_key(&order)) {
            sleep(PROVIDER_TAKES).await;
            self.with(|captures| *captures.entry(order).or_default() += 1);
        }
        Captured { order, capture: format!("cap_{order}") }
    }

    fn with<T>(&self, look: impl FnOnce(&mut HashMap<u64, u32>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Has every order completed by both routes, all at the same moment.
async fn fire(app: Router, orders: u64) -> Result<Vec<StatusCode>, Box<dyn Error>> {
    let mut requests = Vec::new();
    for order in 1..=orders {
        requests.push(Request::post(format!("/orders/{order}/complete")).body(Body::empty())?);
        let event = serde_json::json!({ "id": format!("evt_{order}"), "order": order });
        let webhook = Request::post("/webhook").header(header::CONTENT_TYPE, "application/json");
        requests.push(webhook.body(event.to_string().into())?);
    }
    let barrier = Arc::new(Barrier::new(requests.len()));
    let mut tasks = JoinSet::new();
    for request in requests {
        let (app, barrier) = (app.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            app.oneshot(request).await.map(|response| response.status())
        });
    }
    let statuses: Result<Vec<_>, _> = tasks.join_all().await.into_iter().collect();
    Ok(statuses?)
}

#[expect(clippy::print_stdout, reason = "the report is what the example is run for")]
fn report(protection: Protection, shop: &Shop, statuses: &[StatusCode]) {
    let captures: u32 = shop.with(|captures| captures.values().sum());
    let fine = statuses.iter().filter(|status| status.is_success()).count();
    println!(
        "protection {protection:?}: {ORDERS} orders, {} requests, {fine} answered 2xx, {captures} captures",
        statuses.len()
    );
}

const ORDERS: u64 = 200;
const PROVIDER_TAKES: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn case_100_browser_and_webhook_capture_once() {
        let shop = Shop::default();
        let statuses = fire(app(&shop, Protection::On).unwrap(), ORDERS).await.unwrap();
        assert_eq!(statuses, vec![StatusCode::OK; 400]);
        assert_eq!(shop.with(|captures| captures.clone()), (1..=ORDERS).map(|order| (order, 1)).collect());

        let shop = Shop::default();
        fire(app(&shop, Protection::Off).unwrap(), ORDERS).await.unwrap();
        let captures: u32 = shop.with(|captures| captures.values().sum());
        assert!(captures > 200, "without protection nothing was captured twice: the run has no teeth");
    }

    #[tokio::test]
    async fn the_second_route_gets_the_first_ones_answer() {
        let app = app(&Shop::default(), Protection::On).unwrap();
        let browser = Request::post("/orders/42/complete").body(Body::empty()).unwrap();
        let first = app.clone().oneshot(browser).await.unwrap();
        let webhook = Request::post("/webhook").header(header::CONTENT_TYPE, "application/json");
        let webhook = webhook.body(Body::from(r#"{"id": "evt_1", "order": 42}"#)).unwrap();
        let second = app.oneshot(webhook).await.unwrap();

        assert!(!first.headers().contains_key("idempotent-replayed"));
        assert_eq!(second.headers()["idempotent-replayed"], "true");
        let first = axum::body::to_bytes(first.into_body(), 1024).await.unwrap();
        assert_eq!(first, r#"{"order":42,"capture":"cap_42"}"#);
        assert_eq!(axum::body::to_bytes(second.into_body(), 1024).await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_webhook_without_an_order_is_refused() {
        let shop = Shop::default();
        let webhook = Request::post("/webhook").body(Body::from(r#"{"id": "evt_1"}"#)).unwrap();
        let refused = app(&shop, Protection::On).unwrap().oneshot(webhook).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        assert!(shop.with(|captures| captures.is_empty()));
    }
}
