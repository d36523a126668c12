//! Sweeping: what goes, what stays, and what remains of it.

use std::time::Duration;

use idempotency::{Claimed, Outcome, Store, Swept};

use crate::common::forgetting;
use crate::support::{File, HOUR, claim, grant, outcome, run};

forgetting::forgetting_tests!(File);

const MARKER: &str = "a-secret-that-nobody-may-find-after-it-is-forgotten";

#[tokio::test]
async fn a_forgotten_payload_is_nowhere_in_the_files() {
    let file = File::migrated().await;
    let store = file.store().await;
    let small = Outcome::new(200, MARKER.as_bytes().into());
    let large = Outcome::new(200, MARKER.repeat(2000).into());
    for (key, outcome) in [("small", &small), ("large", &large)] {
        run(&store, &claim(key), outcome).await;
    }
    assert!(file.holds(MARKER.as_bytes()));
    file.clock.advance(2 * HOUR);
    let swept = store.sweep(10).await.unwrap();
    assert_eq!((swept.tombstoned, swept.purged), (2, 0));
    assert!(!file.holds(MARKER.as_bytes()), "neither in the database nor in its log");
    assert!(matches!(store.claim(&claim("small")).await.unwrap(), Claimed::Executed(_)));
}

#[tokio::test]
async fn a_purged_record_is_nowhere_in_the_files() {
    let file = File::migrated().await;
    let store = file.store().await;
    let holder = grant(&store, &claim("k")).await;
    store.mark_in_doubt(&holder, Some(&Outcome::new(500, MARKER.as_bytes().into()))).await.unwrap();
    let who = Outcome::new(200, MARKER.as_bytes().into());
    run(&store, &claim("l"), &who).await;
    file.clock.advance(100 * 24 * HOUR);
    let swept = store.sweep(10).await.unwrap();
    assert_eq!((swept.purged, swept.escapes), (2, 1));
    assert!(!file.holds(MARKER.as_bytes()));
    assert!(!file.holds(claim("k").id.as_bytes()));
}

#[tokio::test]
async fn a_reader_in_the_middle_of_something_delays_only_the_log() {
    let file = File::migrated().await;
    let store = file.store().await;
    run(&store, &claim("k"), &Outcome::new(200, MARKER.as_bytes().into())).await;
    let mut reader = file.connection().await;
    sqlx::raw_sql("BEGIN; SELECT count(*) FROM idempotency_records;").execute(&mut reader).await.unwrap();
    file.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
    sqlx::raw_sql("COMMIT;").execute(&mut reader).await.unwrap();

    run(&store, &claim("l"), &outcome("another")).await;
    file.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
    assert!(!file.holds(MARKER.as_bytes()), "the next sweep saw to it");
}

#[tokio::test]
async fn a_sweep_with_nothing_to_do_takes_no_write_lock() {
    let file = File::migrated().await;
    let store = file.options().busy_timeout(Duration::ZERO).open().await.unwrap();
    run(&store, &claim("k"), &outcome("answer")).await;
    let mut other = file.connection().await;
    sqlx::raw_sql("BEGIN IMMEDIATE;").execute(&mut other).await.unwrap();
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
}
