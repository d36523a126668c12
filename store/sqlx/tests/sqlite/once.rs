//! No time-ordered key runs twice in a database, whatever clocks, clients and restarts do.

use std::time::Duration;

use idempotency::conformance::once::{Schedule, Seen, World, judged_when_sent, play, without_floors};
use idempotency::time::Clock as _;
use idempotency::{Claim, Claimed, Store as _, StoreError, Timestamp};
use idempotency_sqlx::SqliteStore;

use crate::support::File;

const CLAIMS: u64 = 8_000;

/// A rule that a database is asked to do without.
#[derive(Clone, Copy, Debug)]
enum Rule {
    PurgesRaiseTheFloor,
    TheClaimJudgesTheAge,
    FloorsOutliveTheProcess,
}

struct Database {
    file: File,
    store: SqliteStore,
    without: Option<Rule>,
}

impl World for Database {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    fn now(&self) -> Timestamp {
        self.file.clock.now()
    }

    fn set(&mut self, now: Timestamp) {
        self.file.clock.set(now);
    }

    async fn restart(&mut self) {
        self.store = self.file.store().await;
        if let Some(Rule::FloorsOutliveTheProcess) = self.without {
            self.file.execute("DELETE FROM idempotency_floors").await;
        }
    }

    async fn claim(&self, claim: Claim, sent: Timestamp) -> Result<Claimed, StoreError> {
        let claim = match self.without {
            Some(Rule::PurgesRaiseTheFloor) => without_floors(claim),
            Some(Rule::TheClaimJudgesTheAge) => judged_when_sent(claim, sent, self.now()),
            _ => claim,
        };
        self.store.claim(&claim).await
    }
}

async fn seen(without: Option<Rule>) -> Seen {
    let file = File::migrated().await;
    let mut world = Database { store: file.store().await, file, without };
    // Rows stay an hour for their tokens, so keys are up to two hours old and the clock leaps as far.
    let unit = Duration::from_secs(24);
    let schedule = Schedule { seed: 0, claims: CLAIMS, unit, steps_back: 100 * unit, drift_changes: true };
    play(&mut world, schedule).await
}

#[tokio::test]
async fn no_key_runs_twice() {
    let seen = seen(None).await;
    assert_eq!((seen.twice, seen.claims), (0, CLAIMS), "{seen:?}");
    assert!(seen.granted > CLAIMS / 20 && seen.too_old > CLAIMS / 20 && seen.restarts > 5, "{seen:?}");
}

#[tokio::test]
async fn without_any_rule_a_key_runs_twice() {
    for rule in [Rule::PurgesRaiseTheFloor, Rule::TheClaimJudgesTheAge, Rule::FloorsOutliveTheProcess] {
        let seen = seen(Some(rule)).await;
        assert_eq!(seen.twice, 1, "without {rule:?}: {seen:?}");
    }
}
