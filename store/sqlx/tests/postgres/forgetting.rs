//! Sweeping: what goes, what stays, and what remains of it.

use std::time::Duration;

use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, KeyClass, Lease, Life, Nonce, Recovery, Settled, Store, Swept, Timestamp, Windows,
};
use idempotency_sqlx::Statements;

use crate::support::{HOUR, Place, claim, duplicate, execute, grant, granted, life, outcome, run};

#[tokio::test]
async fn a_sweep_keeps_to_its_limit_and_says_that_there_is_more() {
    let place = Place::migrated().await;
    let store = place.options().statements(Statements::PreparedOnce).open().await.unwrap();
    for n in 0..300 {
        run(&store, &claim(&n.to_string()), &outcome("answer")).await;
    }
    place.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(0).await.unwrap(), Swept::default());
    let expected = |tombstoned, more| Swept { tombstoned, more, ..Swept::default() };
    assert_eq!(store.sweep(250).await.unwrap(), expected(250, true));
    assert_eq!(store.sweep(250).await.unwrap(), expected(50, false));
    assert_eq!(store.sweep(250).await.unwrap(), expected(0, false));
}

#[tokio::test]
async fn a_sweep_steps_over_rows_that_others_have() {
    let place = Place::migrated().await;
    let store = place.store().await;
    for key in ["a", "b", "c"] {
        run(&store, &claim(key), &outcome("answer")).await;
    }
    place.clock.advance(2 * HOUR);
    let mut other = place.connection().await;
    execute(&mut other, "BEGIN; SELECT 1 FROM idempotency_records ORDER BY id LIMIT 1 FOR UPDATE;").await;
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 2);
    execute(&mut other, "COMMIT;").await;
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
}

#[tokio::test]
async fn what_was_forgotten_stays_forgotten_when_the_clock_steps_back() {
    let place = Place::migrated().await;
    let store = place.store().await;
    run(&store, &claim("k"), &outcome("answer")).await;
    place.clock.advance(100 * 24 * HOUR);
    let swept_at = place.clock.now();
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    place.clock.set(swept_at.before(50 * 24 * HOUR));
    for store in [store, place.store().await] {
        let grant = granted(store.claim(&claim(&format!("{:?}", Nonce::random()))).await.unwrap());
        assert!(grant.token.get() >= swept_at.micros().unsigned_abs(), "the clock never reads less again");
    }
}

const MAX_AGE: Duration = Duration::from_secs(600);

/// A claim of a key made now, refused at an age of `max_age`.
fn aged(place: &Place, key: &str, max_age: Duration) -> Claim {
    let age = AgeLimit { max_age, drift: Duration::from_secs(1), class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR, 1000 * HOUR).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
    Claim { life, key_time: Some(place.clock.now()), ..claim(key) }
}

#[tokio::test]
async fn a_raised_maximum_age_does_not_admit_a_purged_key() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    place.clock.advance(2000 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    let generous = Claim { key_time: request.key_time, ..aged(&place, "k", 900 * HOUR) };
    place.clock.set(request.key_time.unwrap().after(HOUR));
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the clock that was kept");
    place.execute("DELETE FROM idempotency_clock;").await;
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the floor");
    let newer = Claim { key_time: Some(place.clock.now()), ..aged(&place, "l", MAX_AGE) };
    granted(store.claim(&newer).await.unwrap());
}

/// The claim's statement began before the purge was committed, waited for it, and so does not see its floor.
#[tokio::test]
async fn a_claim_that_waits_for_a_purge_of_its_key_sees_the_floor_of_it() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    let generous = Claim { key_time: request.key_time, ..duplicate(&aged(&place, "k", 900 * HOUR)) };
    let mut sweeper = place.connection().await;
    let floor = request.key_time.unwrap().micros();
    let purge =
        format!("BEGIN; INSERT INTO idempotency_floors VALUES ('uuid7', {floor}); DELETE FROM idempotency_records;");
    execute(&mut sweeper, &purge).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&generous).await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "it waits for the purge");
    execute(&mut sweeper, "COMMIT;").await;
    assert_eq!(waiting.await.unwrap().unwrap(), Claimed::TooOld);
    assert_eq!(store.inspect(&request.id).await.unwrap(), None, "nothing of it stayed");
}

#[tokio::test]
async fn a_life_that_begins_over_another_forgets_it_like_a_purge() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    place.clock.advance(2000 * HOUR);
    let opaque = Claim { life: life(), key_time: None, ..duplicate(&request) };
    granted(store.claim(&opaque).await.unwrap());
    let floor = sqlx::query_scalar("SELECT floor FROM idempotency_floors WHERE class = 'uuid7'");
    let floor: i64 = floor.fetch_one(&mut place.connection().await).await.unwrap();
    assert_eq!(Some(floor), request.key_time.map(Timestamp::micros));
}

#[tokio::test]
async fn a_live_record_outlives_a_sweep_with_a_wrong_due_time() {
    let place = Place::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    run(&store, &request, &outcome("answer")).await;
    place.execute("UPDATE idempotency_records SET due = 0;").await;
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
    place.clock.advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1, "the time was put right");
}

/// The sweep judges a row, and by the time it deletes somebody has begun a new life in it. Sweepers lock what they judge,
/// so either the claim waits for the purge or the sweep steps over the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sweepers_beside_claims_delete_no_new_life() {
    const KEYS: usize = 8;
    let place = Place::migrated().await;
    let store = place.options().statements(Statements::PreparedOnce).open().await.unwrap();
    let direct = place.options().open().await.unwrap();
    for round in 0..25 {
        // Every record's life is over, and its token's hold with it: a claim begins a new life, a sweep deletes.
        place.clock.advance(100 * 24 * HOUR);
        let sweepers: Vec<_> = [&store, &direct, &store]
            .map(|store| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        store.sweep(100).await.unwrap();
                    }
                })
            })
            .into();
        let mut holders = Vec::new();
        for key in 0..KEYS {
            let request = claim(&format!("k-{key}"));
            holders.push((grant(&store, &request).await, request));
        }
        for sweeper in sweepers {
            sweeper.await.unwrap();
        }
        for (holder, request) in holders {
            let again = store.claim(&duplicate(&request)).await.unwrap();
            assert!(matches!(again, Claimed::InFlight { .. }), "round {round}: {again:?}");
            assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
        }
    }
}
