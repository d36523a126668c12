//! The suite that leases are held against, for both ways to send statements.

use std::time::Duration;

use idempotency::conformance::leases::LeaseHarness;
use idempotency::time::Clock;
use idempotency_sqlx::{PostgresLeases, Statements};
use idempotency_testbed::servers::PgBouncer;

use crate::common::leases;
use crate::support::{Place, server};

struct Postgres {
    place: Place,
    leases: PostgresLeases,
}

impl Postgres {
    async fn empty(statements: Statements) -> Self {
        let place = Place::migrated().await;
        Self { leases: place.options().statements(statements).open().await.unwrap().leases(), place }
    }
}

impl LeaseHarness for Postgres {
    type Leases = PostgresLeases;

    fn leases(&self) -> &PostgresLeases {
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

mod in_transactions {
    use super::{Postgres, Statements};

    idempotency::lease_conformance_tests!(Postgres::empty(Statements::InTransactions).await);
}

mod prepared_once {
    use super::{Postgres, Statements};

    idempotency::lease_conformance_tests!(Postgres::empty(Statements::PreparedOnce).await);
}

leases::lease_tests!(Place);

/// Whatever the sessions' default is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holders_are_one_at_a_time_whatever_the_default_isolation_is() {
    for isolation in ["repeatable read", "serializable"] {
        let database = format!("leases_{}", isolation.replace(' ', "_"));
        let place = Place::at(server().create_database(&database));
        place.execute(&format!("ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}';")).await;
        place.real_options().migrate().await.unwrap();
        let stores = place.real_stores().await;
        leases::short_leases_have_rising_tokens(stores.iter().map(|store| store.leases()).collect()).await;
        leases::holders_are_one_at_a_time(stores.iter().map(|store| store.leases()).collect()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holders_are_one_at_a_time_through_a_proxy_that_pools_transactions() {
    let _ = server().create_database("leases_proxied"); // the proxy has its own URL of it
    let proxy = PgBouncer::start(server());
    let place = Place::at(proxy.url("leases_proxied"));
    place.real_options().migrate().await.unwrap();
    let store = place.real_options().connections(20).open().await.unwrap();
    leases::short_leases_have_rising_tokens(vec![store.leases()]).await;
    leases::holders_are_one_at_a_time(vec![store.leases()]).await;
}
