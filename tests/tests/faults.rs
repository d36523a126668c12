//! A short fault run over each store. Longer ones, with other seeds: the program `faults`.

use std::time::Duration;

use idempotency_testbed::faults::{Minimum, Plan, Ran, Store, run};
use tokio::sync::Mutex;

/// For so long there are faults, and that share of a minute's minimum must be seen. On a machine that is busy with something else it takes
/// longer to see it, and to be well again.
const LENGTH: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);
const MINIMUM: Minimum = Minimum { overlaps: 3, superseded: 2, lost: 13 };

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_one_effect_per_key_in_sqlite() {
    holds(Store::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_one_effect_per_key_in_postgresql() {
    holds(Store::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_and_failovers_leave_one_effect_per_key_in_postgresql_with_a_replica() {
    holds(Store::PostgresPair).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_one_effect_per_key_in_mariadb() {
    holds(Store::MariaDb).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_one_effect_per_key_in_redis() {
    holds(Store::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_leave_one_effect_per_key_in_redis_whose_clock_is_set() {
    holds(Store::RedisClock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_that_forgets_allows_no_more_effects_than_it_forgot_and_no_superseded_write() {
    holds(Store::RedisLossy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_faults_without_protection_have_double_effects_and_lost_updates() {
    proves(&Plan { protected: false, ..plan(Store::Sqlite) }).await;
}

async fn holds(store: Store) {
    proves(&plan(store)).await;
}

/// A run that saw too little proves nothing: a longer one has to.
async fn proves(plan: &Plan) {
    for (seed, times) in [(7, 1), (8, 2), (9, 4)] {
        let ran = ran(&Plan { seed, length: plan.length * times, ..plan.clone() }).await;
        assert!(!plan.protected || ran.violations.is_empty(), "{ran}");
        if ran.faults().is_empty() {
            return;
        }
        eprintln!("{ran}");
    }
    panic!("three runs saw too little");
}

fn plan(store: Store) -> Plan {
    Plan { length: LENGTH, minimum: MINIMUM, patience: PATIENCE, ..Plan::new(store, 7) }
}

async fn ran(plan: &Plan) -> Ran {
    // One after the other: what a run sees is less when it shares the machine.
    static ALONE: Mutex<()> = Mutex::const_new(());
    let _alone = ALONE.lock().await;
    // Printed first, so that a run that hangs can be run again.
    eprintln!("faults {}", plan.arguments());
    run(env!("CARGO_BIN_EXE_testbed").as_ref(), plan).await
}
