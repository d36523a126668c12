//! The suite that leases are held against.

use std::time::Duration;

use idempotency::conformance::leases::LeaseHarness;
use idempotency::time::Clock;
use idempotency_sqlx::SqliteLeases;

use crate::common::leases;
use crate::support::File;

struct Sqlite {
    file: File,
    leases: SqliteLeases,
}

impl Sqlite {
    async fn empty() -> Self {
        let file = File::migrated().await;
        Self { leases: file.store().await.leases(), file }
    }
}

impl LeaseHarness for Sqlite {
    type Leases = SqliteLeases;

    fn leases(&self) -> &SqliteLeases {
        &self.leases
    }
    async fn advance(&self, by: Duration) {
        self.file.clock.advance(by);
    }
    async fn step_back(&self, by: Duration) {
        self.file.clock.set(self.file.clock.now().before(by));
    }
    fn exact_clock(&self) -> bool {
        true
    }
    fn steps_back(&self) -> bool {
        true
    }
}

idempotency::lease_conformance_tests!(Sqlite::empty().await);

leases::lease_tests!(File);
