//! The suite that every store is held against.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::time::Clock;
use idempotency_sqlx::MySqlStore;

use crate::common::Database;
use crate::support::Place;

struct MySql {
    place: Place,
    store: MySqlStore,
}

impl MySql {
    async fn empty() -> Self {
        let place = Place::migrated().await;
        Self { store: place.store().await, place }
    }
}

impl Harness for MySql {
    type Store = MySqlStore;

    fn store(&self) -> &MySqlStore {
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
    fn keeps_floors(&self) -> bool {
        true
    }
}

idempotency::conformance_tests!(MySql::empty().await);

mod steps {
    use super::MySql;

    idempotency::step_conformance_tests!(MySql::empty().await);
}
