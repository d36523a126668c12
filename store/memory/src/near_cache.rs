//! Completed outcomes kept near, in front of a store that is far.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotency::time::BootInstant;
use idempotency::watch::Watch;
use idempotency::{
    Claim, Claimed, Entry, Fingerprint, Holder, Lease, List, Nonce, Outcome, Page, RecordId, Resolve, Resolved,
    Settled, Store, StoreError, Swept, Timestamp,
};
use moka::Expiry;
use moka::sync::Cache;

use crate::own::own;
use crate::room::RECORD_OVERHEAD;

/// A store with a bounded cache in front of it, for keys that are asked for again and again. Clones share the cache.
///
/// 1. Only completed outcomes are kept, as the store replayed them: nothing in flight, in doubt or executed without
///    an answer. What is evicted is asked of the store again, so here eviction is harmless.
/// 2. A hit needs the same fingerprint. Everything else is the store's to answer.
/// 3. An outcome is served for the time that the store said was left, counted from before it was asked, on a clock
///    that runs on while the machine is suspended.
/// 4. A claim of a nonce that was abandoned may be replayed here where the store would refuse it, when another process
///    abandoned it. Its claimer wanted the outcome, so it is none the worse.
///
/// ```
/// use idempotency_memory::{MemoryStore, NearCache};
///
/// // `MemoryStore` stands for a store that is further away.
/// let store = NearCache::builder(MemoryStore::new()).max_bytes(16 * 1024 * 1024).build();
/// # let _ = store;
/// ```
///
/// # Cancel safety
/// As the store's. A claim that is dropped before the store answered caches nothing.
#[derive(Clone)]
pub struct NearCache<S> {
    store: S,
    kept: Cache<RecordId, Arc<Kept>>,
    clock: NearClock,
}

type NearClock = Arc<dyn Fn() -> BootInstant + Send + Sync>;

/// A replay as the store gave it.
struct Kept {
    fingerprint: Fingerprint,
    outcome: Outcome,
    completed_at: Timestamp,
    age: Duration,
    time_left: Duration,
    /// Before the store was asked.
    asked: BootInstant,
}

impl<S: Store> NearCache<S> {
    /// A cache of at most 64 MiB in front of `store`.
    #[must_use]
    pub fn new(store: S) -> Self {
        Self::builder(store).build()
    }

    /// A cache with settings: see [`NearCacheBuilder`].
    pub fn builder(store: S) -> NearCacheBuilder<S> {
        NearCacheBuilder { store, max_bytes: DEFAULT_MAX_BYTES, clock: Arc::new(BootInstant::now) }
    }

    /// The store behind it.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    fn hit(&self, claim: &Claim) -> Option<Claimed> {
        let kept = self.kept.get(&claim.id)?;
        if kept.fingerprint != claim.fingerprint {
            return None;
        }
        let since = (self.clock)().since(kept.asked);
        let time_left = kept.time_left.saturating_sub(since);
        if time_left.is_zero() {
            self.kept.invalidate(&claim.id);
            return None;
        }
        Some(Claimed::Replay {
            outcome: kept.outcome.clone(),
            completed_at: kept.completed_at,
            age: kept.age + since,
            time_left,
        })
    }
}

impl<S: Store> Store for NearCache<S> {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        if let Some(replay) = self.hit(claim) {
            return Ok(replay);
        }
        let asked = (self.clock)();
        let claimed = self.store.claim(claim).await?;
        if let Claimed::Replay { outcome, completed_at, age, time_left } = &claimed {
            let kept = Kept {
                fingerprint: claim.fingerprint,
                outcome: own(outcome),
                completed_at: *completed_at,
                age: *age,
                time_left: *time_left,
                asked,
            };
            self.kept.insert(claim.id, Arc::new(kept));
        }
        Ok(claimed)
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        self.store.renew(holder, lease).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        self.store.complete(holder, outcome).await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.store.release(holder, dead_for).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        self.store.mark_in_doubt(holder, response).await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        // The store refuses this nonce from now on, and an outcome that is kept here would answer it instead.
        self.kept.invalidate(id);
        self.store.abandon(id, nonce, dead_for).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.store.resolve(resolve).await
    }

    fn watch(&self, id: &RecordId) -> Watch {
        self.store.watch(id)
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        self.store.inspect(id).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.store.list(list).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.store.sweep(limit).await
    }
}

impl<S: fmt::Debug> fmt::Debug for NearCache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NearCache").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Settings of a [`NearCache`].
#[must_use]
pub struct NearCacheBuilder<S> {
    store: S,
    max_bytes: u64,
    clock: NearClock,
}

impl<S: Store> NearCacheBuilder<S> {
    /// The most bytes it keeps, with about half a KiB for each outcome besides its own. Default: 64 MiB. A small cache
    /// asks the store more often and does no other harm.
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// The clock that outcomes are kept by. Default: [`BootInstant::now`]. One that stops while the machine is suspended
    /// serves outcomes that the store has forgotten; this is for tests that move the store's clock.
    pub fn clock(self, clock: impl Fn() -> BootInstant + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The cache, with nothing in it.
    #[must_use]
    pub fn build(self) -> NearCache<S> {
        let kept = Cache::builder()
            .max_capacity(self.max_bytes)
            .weigher(|_, kept: &Arc<Kept>| u32::try_from(kept.outcome.size() + RECORD_OVERHEAD).unwrap_or(u32::MAX))
            .expire_after(AfterTimeLeft)
            .build();
        NearCache { store: self.store, kept, clock: self.clock }
    }
}

impl<S: fmt::Debug> fmt::Debug for NearCacheBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("NearCacheBuilder");
        debug.field("store", &self.store).field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

/// Frees what is no longer served. What is served is decided at the hit: the cache's own clock stops in suspend.
struct AfterTimeLeft;

impl Expiry<RecordId, Arc<Kept>> for AfterTimeLeft {
    fn expire_after_create(&self, _: &RecordId, kept: &Arc<Kept>, _: Instant) -> Option<Duration> {
        Some(kept.time_left)
    }

    fn expire_after_update(&self, _: &RecordId, kept: &Arc<Kept>, _: Instant, _: Option<Duration>) -> Option<Duration> {
        Some(kept.time_left)
    }
}

const DEFAULT_MAX_BYTES: u64 = 64 * 1024 * 1024;
