//! The leases of this crate.

use std::time::Duration;

use idempotency::conformance::leases::LeaseHarness;
use idempotency::time::{Clock, ManualClock};
use idempotency::{Acquired, Ask, BoxLeases, Lease, LeaseHolder, Leases, Nonce, Resource, Settled, Timestamp};
use idempotency_memory::MemoryLeases;

use crate::harness::Ahead;

struct Memory {
    clock: ManualClock,
    leases: MemoryLeases<ManualClock>,
}

impl Memory {
    fn empty() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
        Self { leases: MemoryLeases::with_clock(clock.clone()), clock }
    }
}

struct Running {
    clock: ManualClock,
    leases: MemoryLeases<Ahead>,
}

impl Running {
    fn empty() -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(0));
        Self { leases: MemoryLeases::with_clock(Ahead(clock.clone())), clock }
    }
}

struct Boxed {
    clock: ManualClock,
    leases: BoxLeases,
}

impl Boxed {
    fn empty() -> Self {
        let Memory { clock, leases } = Memory::empty();
        Self { clock, leases: BoxLeases::new(leases) }
    }
}

macro_rules! harness {
    ($harness:ty, $leases:ty, exact $exact:literal) => {
        impl LeaseHarness for $harness {
            type Leases = $leases;

            fn leases(&self) -> &$leases {
                &self.leases
            }
            async fn advance(&self, by: Duration) {
                self.clock.advance(by);
            }
            async fn step_back(&self, by: Duration) {
                self.clock.set(self.clock.now().before(by));
            }
            fn exact_clock(&self) -> bool {
                $exact
            }
            fn steps_back(&self) -> bool {
                true
            }
            fn token_hold(&self) -> Duration {
                Duration::ZERO
            }
        }
    };
}

harness!(Memory, MemoryLeases<ManualClock>, exact true);
harness!(Boxed, BoxLeases, exact true);
harness!(Running, MemoryLeases<Ahead>, exact false);

mod standing_clock {
    idempotency::lease_conformance_tests!(super::Memory::empty());
}

mod boxed {
    idempotency::lease_conformance_tests!(super::Boxed::empty());
}

/// On a clock that runs by itself, as a server's does.
mod running_clock {
    idempotency::lease_conformance_tests!(super::Running::empty());
}

#[tokio::test]
async fn what_is_over_is_cleared_away_without_a_sweeper() {
    let memory = Memory::empty();
    let lease = Lease::new(Duration::from_secs(1)).unwrap();
    for n in 0..10_000 {
        let resource = Resource::parse(&format!("job/{n}")).unwrap();
        let ask = Ask { resource: resource.clone(), nonce: Nonce::random(), lease, above: None };
        let Acquired::Granted(grant) = memory.leases.try_acquire(&ask).await.unwrap() else { panic!("not granted") };
        if n % 2 == 0 {
            let holder = LeaseHolder { resource, token: grant.token, nonce: ask.nonce };
            assert_eq!(memory.leases.release(&holder, Duration::ZERO).await.unwrap(), Settled::Applied);
        }
        memory.clock.advance(Duration::from_millis(10));
    }
    assert!(memory.leases.len() <= 2 * 64, "{}", memory.leases.len());
    memory.clock.advance(Duration::from_secs(2));
    memory.leases.sweep(usize::MAX).await.unwrap();
    assert!(memory.leases.is_empty());
}
