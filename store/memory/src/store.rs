//! The in-process store.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use idempotency::time::SystemClock;
use idempotency::watch::{Watch, Watchers};
use idempotency::{
    Claim, Claimed, Clock, Entry, Holder, Lease, List, Nonce, OpenError, Outcome, Page, Record, RecordId, Resolve,
    ResolveVerdict, Resolved, Settled, Store, StoreError, Swept, Timestamp, protocol,
};
use parking_lot::{Mutex, MutexGuard};

use crate::MemoryStoreBuilder;
use crate::floors::{AboveCeiling, Floors};
use crate::monotone::Monotone;
use crate::own::own;
use crate::room::Room;
use crate::shard::Shard;

/// A store in this process's memory: a sharded map, every decision under its shard's lock. Cheap to clone; clones
/// share the records.
///
/// 1. **One process.** Several instances behind a balancer need a shared store, or each key runs once in each.
/// 2. **Lost at restart.** Keys with an age limit are safe all the same, if the machine's clock was not set back and the drift not made
///    smaller in between: a key dated before the start plus the limit's drift is refused as too old. So such keys are refused for the length of the drift after each start, or only for a few
///    seconds with a [ceiling](MemoryStoreBuilder::build_under) on disk.
/// 3. **Bounded means refusing.** See [`MemoryStoreBuilder::max_records`]; nothing live is ever evicted.
/// 4. **No sweeper needed** while it is used: each claim clears away a few records that are over. Call
///    [`sweep`](Store::sweep) now and then to free the memory of a store that lies idle, and to count escapes.
/// 5. **Small once completed**: a completed record is packed, and a tombstone keeps 128 of its fingerprint's 256 bits.
/// 6. **A clock that steps back stands still** for this store until it has caught up.
///
/// # Cancel safety
/// No operation waits: each is carried out whole when it is first polled, or not at all. Only a claim whose key is dated above
/// the [ceiling](MemoryStoreBuilder::build_under) waits for the next one, and nothing of it is carried out before.
pub struct MemoryStore<C = SystemClock>(pub(crate) Arc<Shared<C>>);

pub(crate) struct Shared<C> {
    pub(crate) clock: Monotone<C>,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    pub(crate) room: Room,
    floors: Floors,
    watchers: Watchers<RecordId>,
    /// Where the next sweep begins, so that one with a small limit gets round to every shard.
    sweep_from: AtomicUsize,
}

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
    pub(crate) fn with(clock: Monotone<C>, shards: usize, room: Room, floors: Floors) -> Self {
        Self(Arc::new(Shared {
            floors,
            clock,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            room,
            watchers: Watchers::new(),
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

    /// Changes a record under its shard's lock, by one of the protocol's functions, so that it may not be in flight any more.
    fn end<T>(&self, id: &RecordId, change: impl FnOnce(Option<&mut Record>, Timestamp) -> T) -> T {
        let mut shard = self.shard(id);
        let now = self.0.clock.now();
        let changed = shard.change(id, &self.0.room, |record| change(record, now));
        drop(shard);
        self.0.watchers.changed(id);
        changed
    }

    /// What is over must not keep out what is new: a store that seems full is cleared until there is room.
    fn claim_clearing(&self, claim: &Claim) -> Result<Claimed, AboveCeiling> {
        let mut claimed = self.try_claim(claim)?;
        if claimed != Claimed::Full {
            return Ok(claimed);
        }
        // One time for all of it: what was looked at and stays is not due again.
        let now = self.0.clock.now();
        for shard in &self.0.shards {
            let mut more = true;
            while more && claimed == Claimed::Full {
                let cleared = shard.lock().clear(now, &self.0.room, &self.0.floors);
                if cleared.purged + cleared.tombstoned > 0 {
                    claimed = self.try_claim(claim)?;
                }
                more = cleared.more;
            }
        }
        Ok(claimed)
    }

    fn try_claim(&self, claim: &Claim) -> Result<Claimed, AboveCeiling> {
        let mut shard = self.shard(&claim.id);
        // Under the lock, here and everywhere: a time read before waiting for it would judge the past.
        let now = self.0.clock.now();
        shard.claim(claim, now, &self.0.room, &self.0.floors)
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        loop {
            let above = match self.claim_clearing(claim) {
                Ok(claimed) => return Ok(claimed),
                Err(above) => above,
            };
            Box::pin(self.0.floors.rise(above)).await?;
        }
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        Ok(shard.change(&holder.id, &self.0.room, |record| protocol::renew(record, holder, lease, now)))
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let mut shard = self.shard(&holder.id);
        let now = self.0.clock.now();
        let settled = shard.complete(holder, outcome, now, &self.0.room);
        drop(shard);
        self.0.watchers.changed(&holder.id);
        Ok(settled)
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        Ok(self.end(&holder.id, |record, now| protocol::release(record, holder, dead_for, now)))
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        let response = response.map(own);
        Ok(self.end(&holder.id, |record, now| protocol::mark_in_doubt(record, holder, response.as_ref(), now)))
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        let mut shard = self.shard(id);
        let now = self.0.clock.now();
        shard.replace(id, now, &self.0.room, |record| protocol::abandon(record, nonce, dead_for, now));
        drop(shard);
        self.0.watchers.changed(id);
        Ok(())
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        let mut resolve = resolve.clone();
        if let ResolveVerdict::Happened(outcome) = &mut resolve.verdict {
            *outcome = own(outcome);
        }
        Ok(self.end(&resolve.id, |record, now| protocol::resolve(record, &resolve, now)))
    }

    fn watch(&self, id: &RecordId) -> Watch {
        self.0.watchers.watch(id)
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
                let beyond = full && first.last_key_value().is_some_and(|(last, _)| id > *last);
                if beyond || list.after.is_some_and(|after| id <= after) {
                    continue;
                }
                let Some(entry) = record.entry(id, now) else { continue };
                if list.state.is_none_or(|state| state == entry.state) {
                    first.insert(id, entry);
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

    /// Counts towards the limit also what is looked at and stays, so that no lock is held for longer. So it may do less than the limit, or nothing,
    /// and still say that there is more.
    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        let shards = self.0.shards.len();
        let from = self.0.sweep_from.load(Ordering::Relaxed);
        let mut all = Swept::default();
        let mut left = limit;
        for n in 0..shards {
            let index = (from + n) % shards;
            let mut shard = self.0.shards[index].lock();
            // One time for the whole shard: what was looked at and stays is not due again.
            let now = self.0.clock.now();
            let more = loop {
                let (beside, swept) = shard.sweep(now, &mut left, &self.0.room, &self.0.floors);
                all = all.and(beside).and(Swept { more: false, ..swept });
                if !swept.more || left == 0 {
                    break swept.more;
                }
                // Whoever waits for the shard goes first.
                MutexGuard::bump(&mut shard);
            };
            if more {
                all.more = true;
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
