//! The suite that leases are held against, on one server and in a cluster.

use std::time::Duration;

use idempotency::conformance::leases::LeaseHarness;
use idempotency::time::Clock;
use idempotency_redis::RedisLeases;

use crate::support::Place;

struct Redis {
    place: Place,
    leases: RedisLeases,
}

impl Redis {
    async fn empty(place: Place) -> Self {
        Self { leases: place.store().await.leases(), place }
    }
}

impl LeaseHarness for Redis {
    type Leases = RedisLeases;

    fn leases(&self) -> &RedisLeases {
        &self.leases
    }
    async fn advance(&self, by: Duration) {
        self.place.clock.advance(by);
    }
    async fn step_back(&self, by: Duration) {
        self.place.clock.set(self.place.clock.now().before(by));
    }
    fn exact_clock(&self) -> bool {
        true
    }
    fn steps_back(&self) -> bool {
        true
    }
}

mod single {
    use super::{Place, Redis};

    idempotency::lease_conformance_tests!(Redis::empty(Place::new()).await);
}

mod cluster {
    use super::{Place, Redis};

    idempotency::lease_conformance_tests!(Redis::empty(Place::in_cluster()).await);
}
