//! In-process leases.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idempotency::time::SystemClock;
use idempotency::watch::{Watch, Watchers};
use idempotency::{
    Acquired, Ask, Clock, Lease, LeaseEntry, LeaseHolder, LeaseRecord, Leases, Nonce, Resource, Settled, StoreError,
    Timestamp, lease_protocol,
};
use parking_lot::Mutex;

use crate::monotone::Monotone;

/// Leases in this process's memory: one map, every decision under its lock. Cheap to clone; clones share the leases.
///
/// 1. **One process.** They keep apart the tasks of one program, not its replicas.
/// 2. **Lost at restart**, tokens too. The first tokens afterwards are above the old ones if the machine's clock has not
///    stepped back behind the last grant.
/// 3. **Not bounded.** There is an entry for each resource that is held or whose nonces are dead for a while yet, and no
///    asking is refused for want of room. What is over is cleared away when the map has grown to twice of what was left
///    the last time, so no sweeper is needed.
/// 4. **A clock that steps back stands still** for these leases until it has caught up.
///
/// # Cancel safety
/// No operation waits: each is carried out whole when it is first polled, or not at all.
pub struct MemoryLeases<C = SystemClock>(Arc<Shared<C>>);

struct Shared<C> {
    clock: Monotone<C>,
    map: Mutex<Map>,
    watchers: Watchers<Resource>,
}

#[derive(Default)]
struct Map {
    records: HashMap<Resource, LeaseRecord>,
    /// What is over is cleared away when there are so many.
    tidy_at: usize,
}

impl MemoryLeases {
    /// On the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }
}

impl<C: Clock> MemoryLeases<C> {
    /// On another clock, which decides when leases end.
    #[must_use]
    pub fn with_clock(clock: C) -> Self {
        Self(Arc::new(Shared { clock: Monotone::new(clock), map: Mutex::default(), watchers: Watchers::new() }))
    }

    /// How many resources it knows, those that are over but not yet cleared away included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.map.lock().records.len()
    }

    /// Whether it knows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Under the lock; and so is the clock: a time read before waiting for the lock would judge the past.
    fn locked<T>(&self, operation: impl FnOnce(&mut Map, Timestamp) -> T) -> T {
        let mut map = self.0.map.lock();
        let now = self.0.clock.now();
        operation(&mut map, now)
    }
}

impl Map {
    fn put(&mut self, resource: &Resource, record: LeaseRecord, now: Timestamp) {
        if let Some(known) = self.records.get_mut(resource) {
            *known = record;
            return;
        }
        if self.records.len() >= self.tidy_at.max(SMALL) {
            self.sweep(usize::MAX, now);
            self.tidy_at = self.records.len() * 2;
        }
        self.records.insert(resource.clone(), record);
    }

    fn sweep(&mut self, limit: usize, now: Timestamp) -> usize {
        let mut purged = 0;
        self.records.retain(|_, record| {
            let goes = purged < limit && lease_protocol::is_over_holding(record, now, HOLD);
            purged += usize::from(goes);
            !goes
        });
        if self.records.capacity() > SMALL && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
        purged
    }
}

impl<C: Clock> Leases for MemoryLeases<C> {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        self.locked(|map, now| {
            let (acquired, record) = lease_protocol::acquire(map.records.get(&ask.resource), ask, now)?;
            if let Some(record) = record {
                map.put(&ask.resource, record, now);
            }
            Ok(acquired)
        })
    }

    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        Ok(self.locked(|map, now| lease_protocol::renew(map.records.get_mut(&holder.resource), holder, lease, now)))
    }

    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        let released = self
            .locked(|map, now| lease_protocol::release(map.records.get_mut(&holder.resource), holder, dead_for, now));
        self.0.watchers.changed(&holder.resource);
        Ok(released)
    }

    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.locked(|map, now| {
            let known = map.records.get(resource).cloned();
            map.put(resource, lease_protocol::abandon(known, nonce, dead_for, now), now);
        });
        self.0.watchers.changed(resource);
        Ok(())
    }

    fn watch(&self, resource: &Resource) -> Watch {
        self.0.watchers.watch(resource)
    }

    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        Ok(self.locked(|map, now| map.records.get(resource)?.entry_holding(now, HOLD)))
    }

    /// Looks at every entry.
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        Ok(self.locked(|map, now| map.sweep(limit, now)))
    }
}

impl Default for MemoryLeases {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> Clone for MemoryLeases<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> fmt::Debug for MemoryLeases<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLeases").field("resources", &self.len()).finish_non_exhaustive()
    }
}

/// How long a token is held after all else is over. This clock never steps back while the leases live, and with it go
/// their tokens.
const HOLD: Duration = Duration::ZERO;

/// Fewer entries than this are not cleared away.
const SMALL: usize = 64;
