//! The suites that every store is held against, on one server and in a cluster.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::time::Clock;
use idempotency_redis::RedisStore;

use crate::support::Place;

struct Redis {
    place: Place,
    store: RedisStore,
}

impl Redis {
    async fn empty(place: Place) -> Self {
        Self { store: place.store().await, place }
    }
}

impl Harness for Redis {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
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
    /// Redis forgets by itself, and then nobody is there to raise a floor: `RedisOptions::not_before`.
    fn keeps_floors(&self) -> bool {
        false
    }
}

mod single {
    use super::{Place, Redis};

    idempotency::conformance_tests!(Redis::empty(Place::new()).await);

    mod steps {
        use super::{Place, Redis};

        idempotency::step_conformance_tests!(Redis::empty(Place::new()).await);
    }
}

mod cluster {
    use super::{Place, Redis};

    idempotency::conformance_tests!(Redis::empty(Place::in_cluster()).await);

    mod steps {
        use super::{Place, Redis};

        idempotency::step_conformance_tests!(Redis::empty(Place::in_cluster()).await);
    }
}
