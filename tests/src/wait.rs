//! Waiting for a condition instead of for a time.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Asks until `condition` holds, every 10 ms, and panics after 20 s with what was waited for.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    within(Duration::from_secs(20), what, condition).await;
}

/// Asks until `condition` holds, every 10 ms, and panics after `limit` with what was waited for.
pub async fn within(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < give_up, "waited {limit:?} in vain: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}
