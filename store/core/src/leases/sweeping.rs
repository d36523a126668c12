//! Forgetting leases in the background.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::contract::Leases;
use super::leaser::Leaser;
use crate::Sweeper;

impl Sweeper {
    /// Sweeps `leaser`'s store every `every`, in batches, until nothing is left to do. Safe on many replicas at once. Must be called
    /// in a tokio runtime. A usual interval is one minute.
    pub fn of_leases<L: Leases>(leaser: &Leaser<L>, every: Duration) -> Self {
        let leases = Arc::downgrade(&leaser.inner.leases);
        Self(tokio::spawn(async move {
            loop {
                sleep(every).await;
                if !sweep(&leases).await {
                    return;
                }
            }
        }))
    }
}

/// False when nobody uses them any more.
async fn sweep<L: Leases>(leases: &Weak<L>) -> bool {
    loop {
        let Some(leases) = leases.upgrade() else { return false };
        match leases.sweep(BATCH).await {
            Ok(purged) => {
                metrics::counter!("idempotency_leases_purged_total").increment(purged as u64);
                if purged < BATCH {
                    return true;
                }
                // Those in process never wait by themselves.
                yield_now().await;
            }
            Err(error) => {
                tracing::warn!(error = %error, "sweep of leases failed");
                return true;
            }
        }
    }
}

/// Rows in one batch.
const BATCH: usize = 500;
