//! Real faults of other systems, each under its number in the project's collection, over processes that can be killed, paused and
//! restarted on one SQLite store.

mod clocks;
mod concurrency;
mod crashes;
mod operations;
mod windows;

use std::time::Duration;

use idempotency_testbed::{Reply, Testbed, eventually};
use serde_json::{Value, json};

/// Long enough for a slow machine to renew in time, short enough to wait for.
const LEASE: &[&str] = &["--lease", "1500ms"];

fn ten() -> Value {
    json!({ "amount": 10 })
}

/// Waits until the key's record is in this state.
async fn until(testbed: &Testbed, key: &str, state: &str) {
    eventually(state, async || testbed.records(&format!("?key={key}")).await.iter().any(|r| r["state"] == state)).await;
}

/// Posts as a client does that retries with growing pauses until it is answered for good: anything but a 409 or 503 with
/// `Retry-After`, or a connection that broke.
async fn post_until_answered(testbed: &Testbed, path: &str, key: &str) -> Reply {
    let mut pause = Duration::from_millis(200);
    for _ in 0..12 {
        let call = testbed.call(http::Method::POST, path).key(key).json(&ten());
        match call.send().await {
            Ok(reply) if reply.retry_after().is_none() => return reply,
            Ok(_) | Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
    panic!("never answered");
}

/// Waits until a lease of [`LEASE`] is over.
async fn until_expired() {
    tokio::time::sleep(Duration::from_millis(2000)).await;
}
