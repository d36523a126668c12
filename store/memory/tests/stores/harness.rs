//! Stores on a clock that stands still until it is moved.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::time::{BootInstant, Clock, ManualClock, SystemClock};
use idempotency::{BoxStore, Timestamp};
use idempotency_memory::{MemoryStore, MemoryStoreBuilder, NearCache};

pub(crate) struct Memory {
    pub(crate) clock: ManualClock,
    pub(crate) store: MemoryStore<ManualClock>,
}

impl Memory {
    pub(crate) fn empty() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(set: impl FnOnce(MemoryStoreBuilder<ManualClock>) -> MemoryStoreBuilder<ManualClock>) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        let store = set(MemoryStore::builder().clock(clock.clone())).build();
        Self { clock, store }
    }

    pub(crate) fn step_back(&self, by: Duration) {
        self.clock.set(self.clock.now().before(by));
    }
}

/// A near cache over a memory store; its clock moves with the store's, and never back.
pub(crate) struct Near {
    memory: Memory,
    near: ManualClock,
    store: NearCache<MemoryStore<ManualClock>>,
}

impl Near {
    pub(crate) fn empty() -> Self {
        let memory = Memory::empty();
        let near = ManualClock::new(Timestamp::from_micros(0));
        let store = NearCache::builder(memory.store.clone()).clock(boot_clock(&near)).build();
        Self { memory, near, store }
    }
}

/// A boot clock that is moved by hand.
pub(crate) fn boot_clock(manual: &ManualClock) -> impl Fn() -> BootInstant + Send + Sync + 'static {
    let (start, begin, manual) = (BootInstant::now(), manual.now(), manual.clone());
    move || start.after(manual.now().since(begin))
}

pub(crate) struct Boxed {
    memory: Memory,
    store: BoxStore,
}

impl Boxed {
    pub(crate) fn empty() -> Self {
        let memory = Memory::empty();
        Self { store: BoxStore::new(memory.store.clone()), memory }
    }
}

/// The system's clock and what was added to it.
#[derive(Clone)]
pub(crate) struct Ahead(pub(crate) ManualClock);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(SystemClock.now().micros() + self.0.now().micros())
    }
}

pub(crate) struct Running {
    ahead: ManualClock,
    store: MemoryStore<Ahead>,
}

impl Running {
    pub(crate) fn empty() -> Self {
        let ahead = ManualClock::new(Timestamp::from_micros(0));
        Self { store: MemoryStore::builder().clock(Ahead(ahead.clone())).build(), ahead }
    }
}

macro_rules! harness {
    ($harness:ty, $store:ty, exact $exact:literal, advance($self:ident, $by:ident) $advance:block, step_back $back:block) => {
        impl Harness for $harness {
            type Store = $store;

            fn store(&self) -> &$store {
                &self.store
            }
            async fn advance(&$self, $by: Duration) $advance
            async fn step_back(&$self, $by: Duration) $back
            fn exact_clock(&self) -> bool {
                $exact
            }
            fn steps_back(&self) -> bool {
                true
            }
            fn keeps_floors(&self) -> bool {
                true
            }

            fn token_hold(&self) -> std::time::Duration {
                std::time::Duration::ZERO
            }
        }
    };
}

harness!(Memory, MemoryStore<ManualClock>, exact true, advance(self, by) { self.clock.advance(by) }, step_back { self.step_back(by) });
harness!(Near, NearCache<MemoryStore<ManualClock>>, exact true, advance(self, by) {
    self.memory.clock.advance(by);
    self.near.advance(by);
}, step_back { self.memory.step_back(by) });
harness!(Boxed, BoxStore, exact true, advance(self, by) { self.memory.clock.advance(by) }, step_back { self.memory.step_back(by) });
harness!(Running, MemoryStore<Ahead>, exact false, advance(self, by) { self.ahead.advance(by) }, step_back {
    self.ahead.set(self.ahead.now().before(by));
});
