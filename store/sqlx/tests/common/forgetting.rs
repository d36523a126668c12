//! Sweeping: what goes, what stays, and what remains of it.

use std::time::Duration;

use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, KeyClass, Lease, Life, List, Nonce, Recovery, Settled, State, Store, Swept, Timestamp,
    Windows,
};

use super::{Database, Server};
use idempotency_testbed::requests::{DEAD_FOR, HOUR, claim, duplicate, grant, granted, life, outcome, run};

pub(crate) async fn a_sweep_keeps_to_its_limit_and_says_that_there_is_more<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    for n in 0..300 {
        run(&store, &claim(&n.to_string()), &outcome("answer")).await;
    }
    place.clock().advance(2 * HOUR);
    assert_eq!(store.sweep(0).await.unwrap(), Swept::default());
    let expected = |tombstoned, more| Swept { tombstoned, more, ..Swept::default() };
    assert_eq!(store.sweep(250).await.unwrap(), expected(250, true));
    assert_eq!(store.sweep(250).await.unwrap(), expected(50, false));
    assert_eq!(store.sweep(250).await.unwrap(), expected(0, false));
}

pub(crate) async fn what_was_forgotten_stays_forgotten_when_the_clock_steps_back<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    run(&store, &claim("k"), &outcome("answer")).await;
    place.clock().advance(100 * 24 * HOUR);
    let swept_at = place.clock().now();
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    place.clock().set(swept_at.before(50 * 24 * HOUR));
    for store in [store, place.store().await] {
        let grant = granted(store.claim(&claim(&format!("{:?}", Nonce::random()))).await.unwrap());
        assert!(grant.token.get() >= swept_at.micros().unsigned_abs(), "the clock never reads less again");
    }
}

pub(crate) const MAX_AGE: Duration = Duration::from_secs(600);

/// A claim of a key made now, refused at an age of `max_age`.
pub(crate) fn aged(place: &impl Database, key: &str, max_age: Duration) -> Claim {
    let age = AgeLimit { max_age, drift: Duration::from_secs(1), class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR, 1000 * HOUR).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
    Claim { life, key_time: Some(place.clock().now()), ..claim(key) }
}

pub(crate) async fn a_raised_maximum_age_does_not_admit_a_purged_key<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    place.clock().advance(2000 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    let generous = Claim { key_time: request.key_time, ..aged(&place, "k", 900 * HOUR) };
    place.clock().set(request.key_time.unwrap().after(HOUR));
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the clock that was kept");
    place.execute("DELETE FROM idempotency_clock;").await;
    assert_eq!(store.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld, "by the floor");
    let newer = Claim { key_time: Some(place.clock().now()), ..aged(&place, "l", MAX_AGE) };
    granted(store.claim(&newer).await.unwrap());
}

pub(crate) async fn a_life_that_begins_over_another_forgets_it_like_a_purge<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = aged(&place, "k", MAX_AGE);
    run(&store, &request, &outcome("answer")).await;
    place.clock().advance(2000 * HOUR);
    let opaque = Claim { life: life(), key_time: None, ..duplicate(&request) };
    granted(store.claim(&opaque).await.unwrap());
    let floors = place.texts("SELECT CAST(floor AS CHAR(20)) FROM idempotency_floors WHERE class = 'uuid7'").await;
    let floor = request.key_time.map(Timestamp::micros).unwrap();
    assert_eq!(floors.iter().map(|floor| floor.trim().to_owned()).collect::<Vec<_>>(), [floor.to_string()]);
}

pub(crate) async fn a_live_record_outlives_a_sweep_with_a_wrong_due_time<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let request = claim("k");
    run(&store, &request, &outcome("answer")).await;
    place.execute("UPDATE idempotency_records SET due = 0;").await;
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert!(matches!(store.claim(&duplicate(&request)).await.unwrap(), Claimed::Replay { .. }));
    place.clock().advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1, "the time was put right");
}

/// A sweep comes to its row before there is anything to do.
pub(crate) async fn a_record_that_runs_past_its_response_window_is_swept_when_it_is_over<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
    let (late, never) = (claim("late"), claim("never"));
    let holder = grant(&store, &late).await;
    grant(&store, &never).await;
    place.clock().advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert_eq!(store.inspect(&late.id).await.unwrap().unwrap().state, State::InDoubt);
    assert_eq!(store.complete(&holder, &outcome("answer")).await.unwrap(), Settled::Applied);
    assert_eq!(store.sweep(10).await.unwrap(), Swept::default());
    assert!(matches!(store.claim(&duplicate(&late)).await.unwrap(), Claimed::Replay { .. }));
    place.clock().advance(2 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
    place.clock().advance(48 * HOUR);
    let swept = store.sweep(10).await.unwrap();
    assert_eq!((swept.purged, swept.escapes), (2, 1));
}

pub(crate) async fn a_rare_state_is_found_behind_many_others<D: Database>() {
    let place = D::migrated().await;
    let store = place.store().await;
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

macro_rules! forgetting_tests {
    ($database:ty) => {
        crate::common::tests_of! { $database, forgetting:
            a_sweep_keeps_to_its_limit_and_says_that_there_is_more
            what_was_forgotten_stays_forgotten_when_the_clock_steps_back
            a_raised_maximum_age_does_not_admit_a_purged_key
            a_life_that_begins_over_another_forgets_it_like_a_purge
            a_live_record_outlives_a_sweep_with_a_wrong_due_time
            a_record_that_runs_past_its_response_window_is_swept_when_it_is_over
            a_rare_state_is_found_behind_many_others
        }
    };
}
pub(crate) use forgetting_tests;

pub(crate) async fn a_sweep_steps_over_rows_that_others_have<S: Server>() {
    let place = S::migrated().await;
    let store = place.store().await;
    for key in ["a", "b", "c"] {
        run(&store, &claim(key), &outcome("answer")).await;
    }
    place.clock().advance(2 * HOUR);
    let first = S::bytes(&claim("a").id.to_string());
    let mut other = place.connection().await;
    let take = format!("BEGIN; SELECT 1 FROM idempotency_records WHERE id = {first} FOR UPDATE;");
    S::execute_on(&mut other, &take).await;
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 2);
    S::execute_on(&mut other, "COMMIT;").await;
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
}

/// The sweep judges a row, and by the time it deletes somebody has begun a new life in it. Sweepers lock what they judge,
/// so either the claim waits for the purge or the sweep steps over the row.
pub(crate) async fn sweepers_beside_claims_delete_no_new_life<S: Server>() {
    const KEYS: usize = 8;
    let place = S::migrated().await;
    let [store, other] = place.two_stores().await;
    for round in 0..25 {
        // Every record's life is over, and its token's hold with it: a claim begins a new life, a sweep deletes.
        place.clock().advance(100 * 24 * HOUR);
        let sweepers: Vec<_> = [&store, &other, &store]
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

macro_rules! shared_forgetting_tests {
    ($server:ty) => {
        crate::common::tests_of! { $server, forgetting:
            a_sweep_steps_over_rows_that_others_have
            sweepers_beside_claims_delete_no_new_life
        }
    };
}
pub(crate) use shared_forgetting_tests;
