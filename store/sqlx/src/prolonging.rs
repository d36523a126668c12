//! What a duplicate does in passing that renews a tombstone's window.

use std::time::Duration;

use idempotency::{Settled, StoreError};
use tokio::time::timeout;

use crate::task;

/// Renews a window for a duplicate that has its answer already, whatever becomes of this: an error, or a lock that is not to be
/// had, only loses the renewal. What is not waited for any longer goes on.
pub(crate) async fn in_passing(prolong: impl Future<Output = Result<Settled, StoreError>> + Send + 'static) {
    match timeout(PATIENCE, task::run(prolong)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a hit did not renew its tombstone's window"),
        Err(_) => tracing::debug!("a hit does not wait until its tombstone's window is renewed"),
    }
}

/// Half of what an answer of the store is waited for by default.
const PATIENCE: Duration = Duration::from_millis(500);
