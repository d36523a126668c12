//! Claims that are given up in the background, until the store answers.
//!
//! While a store is away every request leaves such a claim. They wait in a queue, at 48 bytes each, and a few tasks ask for all of them:
//! a flood takes no task a request, and a store that comes back is not met by all of them at once.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::engine::Inner;
use crate::patience::Pauses;
use crate::{Nonce, RecordId, Store, dead_for};

/// How many are given up at once.
const WORKERS: usize = 16;

/// The claims of an engine that are to be given up.
#[derive(Debug, Default)]
pub(crate) struct Abandoning(Mutex<Pending>);

#[derive(Debug, Default)]
struct Pending {
    claims: VecDeque<(RecordId, Nonce)>,
    workers: usize,
}

impl Abandoning {
    /// Whether there must be one more worker, which is counted from now on.
    fn add(&self, id: RecordId, nonce: Nonce) -> bool {
        let mut pending = self.0.lock();
        pending.claims.push_back((id, nonce));
        let one_more = pending.workers < WORKERS;
        pending.workers += usize::from(one_more);
        one_more
    }
}

impl<St: Store> Inner<St> {
    /// Abandons in the background until the store answers; a drain waits for it.
    pub(crate) fn abandon_until_answered(self: &Arc<Self>, id: RecordId, nonce: Nonce) {
        // Outside a runtime (a future dropped after its runtime is gone) there is nobody to do it.
        let Ok(runtime) = Handle::try_current() else { return };
        metrics::counter!("idempotency_claims_abandoned_total").increment(1);
        if self.abandoning.add(id, nonce) {
            // A runtime that is shutting down drops it here and now, so no lock is held.
            let worker = Worker { inner: Arc::clone(self), is_counted: true, claim: None };
            self.tracker.spawn_on(worker.work(), &runtime);
        }
    }
}

struct Worker<St> {
    inner: Arc<Inner<St>>,
    is_counted: bool,
    /// The one that is being given up.
    claim: Option<(RecordId, Nonce)>,
}

impl<St: Store> Worker<St> {
    async fn work(mut self) {
        let dead = dead_for(self.inner.settings.store_timeout);
        let mut pauses = Pauses::in_background();
        while let Some((id, nonce)) = self.next() {
            match self.inner.within_timeout(self.inner.store.abandon(&id, nonce, dead)).await {
                Ok(()) => pauses = Pauses::in_background(),
                Err(error) if error.is_final() => {
                    tracing::error!(record_id = %id, %error, "a claim cannot be abandoned");
                }
                Err(error) => {
                    // Behind the others: what fails for one record alone does not keep them waiting.
                    self.put_back();
                    pauses.pause_after(&error).await;
                }
            }
        }
    }

    /// None when nothing is left. Whoever adds something from then on needs another worker.
    fn next(&mut self) -> Option<(RecordId, Nonce)> {
        let mut pending = self.inner.abandoning.0.lock();
        let next = pending.claims.pop_front();
        self.claim = next;
        if next.is_none() {
            pending.workers -= 1;
            self.is_counted = false;
        }
        next
    }
}

impl<St> Worker<St> {
    fn put_back(&mut self) {
        self.inner.abandoning.0.lock().claims.extend(self.claim.take());
    }
}

impl<St> Drop for Worker<St> {
    fn drop(&mut self) {
        // Dropped with its runtime, or after a panic of the store: whoever comes next has what is left.
        if self.is_counted {
            self.put_back();
            self.inner.abandoning.0.lock().workers -= 1;
        }
    }
}
