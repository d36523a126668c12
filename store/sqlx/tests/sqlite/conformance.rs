//! The suite that every store is held against.

use std::time::Duration;

use idempotency::conformance::Harness;
use idempotency::time::Clock;
use idempotency_sqlx::SqliteStore;

use crate::support::File;

struct Sqlite {
    file: File,
    store: SqliteStore,
}

impl Sqlite {
    async fn empty() -> Self {
        let file = File::migrated().await;
        Self { store: file.store().await, file }
    }
}

impl Harness for Sqlite {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
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
    fn keeps_floors(&self) -> bool {
        true
    }
}

idempotency::conformance_tests!(Sqlite::empty().await);

mod steps {
    use super::Sqlite;

    idempotency::step_conformance_tests!(Sqlite::empty().await);
}
