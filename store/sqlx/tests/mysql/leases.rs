//! The suite that leases are held against.

use std::time::Duration;

use idempotency::conformance::leases::LeaseHarness;
use idempotency::time::Clock;
use idempotency_sqlx::MySqlLeases;

use crate::common::{Database, leases};
use crate::support::Place;

struct MySql {
    place: Place,
    leases: MySqlLeases,
}

impl MySql {
    async fn empty() -> Self {
        let place = Place::migrated().await;
        Self { leases: place.store().await.leases(), place }
    }
}

impl LeaseHarness for MySql {
    type Leases = MySqlLeases;

    fn leases(&self) -> &MySqlLeases {
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

idempotency::lease_conformance_tests!(MySql::empty().await);

leases::lease_tests!(Place);
