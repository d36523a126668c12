//! Forgetting in the background.

use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::{Engine, Store, observing};

/// Sweeps a store every so often until it is dropped. Correctness does not wait for it: every operation judges a record by
/// the clock. It gives back room, and takes payloads out of the store once their window is over.
#[derive(Debug)]
#[must_use = "sweeping stops when this is dropped"]
pub struct Sweeper(pub(crate) JoinHandle<()>);

impl Sweeper {
    /// Sweeps `engine`'s store every `every`, in batches, until nothing is left to do. Safe on many replicas at once.
    /// Must be called in a tokio runtime. A usual interval is one minute.
    pub fn spawn<St: Store>(engine: &Engine<St>, every: Duration) -> Self {
        let engine = engine.downgrade();
        Self(tokio::spawn(async move {
            loop {
                sleep(every).await;
                let Some(inner) = engine.upgrade() else { return };
                loop {
                    match inner.store.sweep(BATCH).await {
                        Ok(swept) => {
                            metrics::counter!("idempotency_purged_total").increment(swept.purged as u64);
                            observing::doubts_forgotten(swept.escapes);
                            if !swept.more {
                                break;
                            }
                            // One in process never waits by itself.
                            yield_now().await;
                        }
                        Err(error) => {
                            tracing::warn!(error = %error, "sweep failed");
                            break;
                        }
                    }
                }
            }
        }))
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Rows in one batch: short enough not to hold up claims.
const BATCH: usize = 500;
