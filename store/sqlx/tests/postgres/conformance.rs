//! The suite that every store is held against, for both ways to send statements.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::time::Clock;
use idempotency_sqlx::{PostgresStore, Statements};

use crate::support::Place;

struct Postgres {
    place: Place,
    store: PostgresStore,
}

impl Postgres {
    async fn empty(statements: Statements) -> Self {
        let place = Place::migrated().await;
        Self { store: place.options().statements(statements).open().await.unwrap(), place }
    }
}

impl Harness for Postgres {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
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

mod in_transactions {
    use super::{Postgres, Statements};

    idempotency::conformance_tests!(Postgres::empty(Statements::InTransactions).await);
}

mod prepared_once {
    use super::{Postgres, Statements};

    idempotency::conformance_tests!(Postgres::empty(Statements::PreparedOnce).await);
}

mod steps_in_transactions {
    use super::{Postgres, Statements};

    idempotency::step_conformance_tests!(Postgres::empty(Statements::InTransactions).await);
}

mod steps_prepared_once {
    use super::{Postgres, Statements};

    idempotency::step_conformance_tests!(Postgres::empty(Statements::PreparedOnce).await);
}
