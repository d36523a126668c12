//! The in-process store.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use idempotency::time::SystemClock;
use idempotency::{
    Claim, Claimed, Clock, Entry, Holder, Lease, List, Nonce, OpenError, Outcome, Page, RecordId, Resolve,
    ResolveVerdict, Resolved, Settled, Store, StoreError, Swept, protocol,
};
use parking_lot::{Mutex, MutexGuard};

use crate::MemoryStoreBuilder;
use crate::floors::Floors;
use crate::monotone::Monotone;
use crate::own::own;
use crate::room::Room;
use crate::shard::Shard;

/// A store in this process's memory: a sharded map, every decision under its shard's lock. Cheap to clone; clones
/// share the records.
///
/// 1. **One process.** Several instances behind a balancer need a shared store, or each key runs once in each.
/// 2. **Lost at restart.** Keys with an age limit are safe all the same: a key dated before the start plus the limit's
///    drift is refused as too old. So such keys are refused for the length of the drift after each start.
/// 3. **Bounded means refusing.** See [`MemoryStoreBuilder::max_records`]; nothing live is ever evicted.
/// 4. **No sweeper needed** while it is used: each claim clears away a few records that are over. Call
///    [`sweep`](Store::sweep) now and then to free the memory of a store that lies idle, and to count escapes.
/// 5. **A clock that steps back stands still** for this store until it has caught up.
///
/// # Cancel safety
/// No operation waits: each is carried out whole when it is first polled, or not at all.
pub struct MemoryStore<C = SystemClock>(pub(crate) Arc<Shared<C>>);

pub(crate) struct Shared<C> {
    pub(crate) clock: Monotone<C>,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    pub(crate) room: Room,
    floors: Floors,
    /// Where the next sweep begins, so that one with a small limit gets round to every shard.
    sweep_from: AtomicUsize,
}

/// A power of two, well above the number of threads that a machine runs at once.
const SHARDS: usize = 128;

impl MemoryStore {
    /// A store without limits, on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with settings: see [`MemoryStoreBuilder`].
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// The store of the URL `memory:`, which is [`MemoryStore::new`].
    ///
    /// # Errors
    /// [`OpenError::Url`] for anything else.
    pub fn open(url: &str) -> Result<Self, OpenError> {
        match url {
            "memory:" => Ok(Self::new()),
            _ => Err(OpenError::Url(format!("{url:?} is not \"memory:\""))),
        }
    }
}

impl<C: Clock> MemoryStore<C> {
    pub(crate) fn with(clock: C, max_records: Option<usize>, max_bytes: Option<usize>) -> Self {
        let clock = Monotone::new(clock);
        Self(Arc::new(Shared {
            floors: Floors::new(clock.now()),
            clock,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            room: Room::new(max_records, max_bytes),
            sweep_from: AtomicUsize::new(0),
        }))
    }

    /// How many records it holds, those that are over but not yet cleared away included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes its records count: see [`MemoryStoreBuilder::max_bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    pub(crate) fn shard(&self, id: &RecordId) -> MutexGuard<'_, Shard> {
        let hash = self.0.hasher.hash_one(id) >> 32;
        let index = usize::try_from(hash).unwrap_or(0) % self.0.shards.len();
        self.0.shards[index].lock()
    }

    fn try_claim(&self, claim: &Claim) -> Claimed {
        let mut shard = self.shard(&claim.id);
        // Under the lock, here and everywhere: a time read before waiting for it would judge the past.
        let now = self.0.clock.now();
        shard.claim(claim, now, &self.0.room, &self.0.floors)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut claimed = self.try_claim(claim);
        // What is over must not keep out what is new.
        for shard in &self.0.shards {
            if claimed != Claimed::Full {
                break;
            }
            if shard.lock().clear(self.0.clock.now(), &self.0.room, &self.0.floors) {
                claimed = self.try_claim(claim);
            }
        }
        Ok(claimed)
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        Ok(shard.change(&holder.id, &self.0.room, |record| protocol::renew(record, holder, lease, now)))
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let outcome = own(outcome);
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        Ok(shard.change(&holder.id, &self.0.room, |record| protocol::complete(record, holder, &outcome, now)))
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        Ok(shard.change(&holder.id, &self.0.room, |record| protocol::release(record, holder, dead_for, now)))
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        let response = response.map(own);
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        let mark = |record: Option<&mut _>| protocol::mark_in_doubt(record, holder, response.as_ref(), now);
        Ok(shard.change(&holder.id, &self.0.room, mark))
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let mut shard = self.shard(id);
        let now = self.0.clock.now();
        shard.replace(id, now, &self.0.room, |record| protocol::abandon(record, nonce, dead_for, now));
        Ok(())
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        let mut resolve = resolve.clone();
        if let ResolveVerdict::Happened(outcome) = &mut resolve.verdict {
            *outcome = own(outcome);
        }
        let mut shard = self.shard(&resolve.id);
        let now = self.0.clock.now();
        Ok(shard.change(&resolve.id, &self.0.room, |record| protocol::resolve(record, &resolve, now)))
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        let shard = self.shard(id);
        let now = self.0.clock.now();
        Ok(shard.record(id).and_then(|record| record.entry(*id, now)))
    }

    /// Looks at every record, a shard at a time: for operators, not for requests.
    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        let mut first: BTreeMap<RecordId, Entry> = BTreeMap::new();
        for shard in &self.0.shards {
            let shard = shard.lock();
            let now = self.0.clock.now();
            for (id, record) in shard.records() {
                let full = first.len() > list.limit;
                let beyond = full && first.last_key_value().is_some_and(|(last, _)| id > last);
                if beyond || list.after.is_some_and(|after| *id <= after) {
                    continue;
                }
                let Some(entry) = record.entry(*id, now) else { continue };
                if list.state.is_none_or(|state| state == entry.state) {
                    first.insert(*id, entry);
                    if full {
                        first.pop_last();
                    }
                }
            }
        }
        // One more than asked for says that there is another page.
        let more = first.len() > list.limit;
        let entries: Vec<Entry> = first.into_values().take(list.limit).collect();
        let next = if more { entries.last().map(|entry| entry.id) } else { None };
        Ok(Page { entries, next })
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        let shards = self.0.shards.len();
        let from = self.0.sweep_from.load(Ordering::Relaxed);
        let mut all = Swept::default();
        let mut left = limit;
        for n in 0..shards {
            let index = (from + n) % shards;
            let mut shard = self.0.shards[index].lock();
            let (beside, swept) = shard.sweep(self.0.clock.now(), left, &self.0.room, &self.0.floors);
            left -= swept.purged + swept.tombstoned;
            all = all.and(beside).and(swept);
            if swept.more {
                self.0.sweep_from.store(index, Ordering::Relaxed);
                break;
            }
        }
        Ok(all)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Clone for MemoryStore<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("records", &self.len()).finish_non_exhaustive()
    }
}
