//! Sweeping: what goes, what stays, and what remains of it.

use std::time::Duration;

use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, KeyClass, Lease, Life, List, Nonce, Outcome, Recovery, State, Store, Swept, Timestamp,
    Windows,
};
use idempotency_sqlx::SqliteStore;
use sqlx::Row;

use crate::support::{DEAD_FOR, File, HOUR, claim, duplicate, grant, granted, life, outcome, run};

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

#[tokio::test]
async fn a_sweep_keeps_to_its_limit_and_says_that_there_is_more() {
    let file = File::migrated().await;
    let store = file.store().await;
    for n in 0..200 {
        run(&store, &claim(&n.to_string()), &outcome("answer")).await;
    }
    file.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(0).await.unwrap(), Swept::default());
    let expected = |tombstoned, more| Swept { tombstoned, more, ..Swept::default() };
    assert_eq!(store.sweep(150).await.unwrap(), expected(150, true));
    assert_eq!(store.sweep(150).await.unwrap(), expected(50, false));
    assert_eq!(store.sweep(150).await.unwrap(), expected(0, false));
}

#[tokio::test]
async fn what_was_forgotten_stays_forgotten_when_the_clock_steps_back() {
    let file = File::migrated().await;
    let store = file.store().await;
    run(&store, &claim("k"), &outcome("answer")).await;
    file.clock.advance(100 * 24 * HOUR);
    let swept_at = file.clock.now();
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    file.clock.set(swept_at.before(50 * 24 * HOUR));
    for store in [store, file.store().await] {
        let grant = granted(store.claim(&claim(&format!("{:?}", Nonce::random()))).await.unwrap());
        assert!(grant.token.get() >= swept_at.micros().unsigned_abs(), "the clock never reads less again");
    }
}

const MAX_AGE: Duration = Duration::from_secs(600);

/// A claim of a key made now, refused at an age of `max_age`.
fn aged(file: &File, key: &str, max_age: Duration) -> Claim {
    let age = AgeLimit { max_age, drift: Duration::from_secs(1), class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR, 1000 * HOUR).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
    Claim { life, key_time: Some(file.clock.now()), ..claim(key) }
}

#[tokio::test]
async fn a_raised_maximum_age_does_not_admit_a_purged_key() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = aged(&file, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    file.clock.advance(2000 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    let generous = Claim { key_time: request.key_time, ..aged(&file, "k", 900 * HOUR) };
    file.clock.set(request.key_time.unwrap().after(HOUR));
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the clock that was kept");
    file.execute("DELETE FROM idempotency_clock;").await;
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the floor");
    let newer = Claim { key_time: Some(file.clock.now()), ..aged(&file, "l", MAX_AGE) };
    granted(store.claim(&newer).await.unwrap());
}

#[tokio::test]
async fn a_life_that_begins_over_another_forgets_it_like_a_purge() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = aged(&file, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    file.clock.advance(2000 * HOUR);
    let opaque = Claim { life: life(), key_time: None, ..duplicate(&request) };
    granted(store.claim(&opaque).await.unwrap());
    let row = sqlx::query("SELECT floor FROM idempotency_floors WHERE class = 'uuid7'");
    let row = row.fetch_one(&mut file.connection().await).await.unwrap();
    assert_eq!(Some(row.get("floor")), request.key_time.map(Timestamp::micros));
}

#[tokio::test]
async fn a_live_record_outlives_a_sweep_with_a_wrong_due_time() {
    let file = File::migrated().await;
    let store = file.store().await;
    let request = claim("k");
    run(&store, &request, &outcome("answer")).await;
    file.execute("UPDATE idempotency_records SET due = 0;").await;
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
    file.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1, "the time was put right");
}

#[tokio::test]
async fn a_rare_state_is_found_behind_many_others() {
    let file = File::migrated().await;
    let store = SqliteStore::options(&file.url()).clock(file.clock.clone()).open().await.unwrap();
    for n in 0..300 {
        store.abandon(&claim(&n.to_string()).id, Nonce::random(), DEAD_FOR).await.unwrap();
    }
    let mut rare: Vec<_> = ["a", "b", "c"].map(claim).into();
    for request in &rare {
        grant(&store, request).await;
    }
    rare.sort_by_key(|request| request.id);
    let mut list = List { state: Some(State::InFlight), limit: 2, ..List::default() };
    let first = store.list(&list).await.unwrap();
    list.after = first.next;
    let second = store.list(&list).await.unwrap();
    let found: Vec<_> = first.entries.iter().chain(&second.entries).map(|entry| entry.id).collect();
    assert_eq!(found, rare.iter().map(|request| request.id).collect::<Vec<_>>());
    assert_eq!((first.entries.len(), second.next), (2, None));
}
