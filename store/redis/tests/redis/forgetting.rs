//! Sweeping: what goes and what stays.

use std::time::Duration;

use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, KeyClass, Lease, Life, List, Nonce, Recovery, State, Store, Swept, Timestamp, Windows,
};

use crate::support::{DEAD_FOR, HOUR, Place, claim, connection, duplicate, grant, granted, outcome, run};

#[tokio::test]
async fn a_sweep_keeps_to_its_limit_and_says_that_there_is_more() {
    let place = Place::new();
    let store = place.store().await;
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

/// FIBER-3262: something is left for every key that there ever was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_31_nothing_is_left_of_keys_that_are_over() {
    let place = Place::in_cluster();
    let (store, other) = (place.store().await, place.store().await);
    let leases = store.leases();
    for n in 0..1000 {
        let request = claim(&n.to_string());
        match n % 3 {
            0 => drop(run(&store, &request, &outcome("answer")).await),
            1 => drop(grant(&store, &request).await),
            _ => store.abandon(&request.id, Nonce::random(), DEAD_FOR).await.unwrap(),
        }
        let ask = idempotency::Ask {
            resource: idempotency::Resource::parse(&format!("account/{n}")).unwrap(),
            nonce: Nonce::random(),
            lease: Lease::default(),
            above: None,
        };
        let acquired = idempotency::Leases::try_acquire(&leases, &ask).await.unwrap();
        assert!(matches!(acquired, idempotency::Acquired::Granted(_)));
    }
    place.clock.advance(50 * HOUR);
    // Removing an entry lets nobody in: somebody begins a new life meanwhile.
    let (kept, mut swept) = (claim("kept"), Swept::default());
    grant(&other, &kept).await;
    loop {
        swept = swept.and(store.sweep(64).await.unwrap());
        assert!(matches!(other.claim(&duplicate(&kept)).await.unwrap(), Claimed::InFlight { .. }));
        if !swept.more {
            break;
        }
    }
    assert_eq!((swept.purged, swept.escapes), (1000, 333));
    let mut purged = 0;
    loop {
        let batch = idempotency::Leases::sweep(&leases, 100).await.unwrap();
        purged += batch;
        if batch < 100 {
            break;
        }
    }
    assert_eq!(purged, 1000);
    let mut keys = Vec::new();
    for node in 0..3 {
        keys.extend(place.keys(&mut connection(&crate::support::cluster().node(node).url()).await).await);
    }
    assert_eq!(keys, [place.key(&kept.id)]);
}

#[tokio::test]
async fn a_rare_state_is_found_behind_many_others() {
    let place = Place::new();
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

/// Redis keeps no floor, so whoever raises the maximum age says when that was.
#[tokio::test]
async fn a_raised_maximum_age_does_not_admit_a_key_from_before_it() {
    let place = Place::new();
    let store = place.store().await;
    let aged = |key: &str, max_age| aged(key, max_age, place.clock.now());
    let request = aged("k", HOUR);
    run(&store, &request, &outcome("answer")).await;
    place.clock.advance(2000 * HOUR);
    assert_eq!(store.sweep(10).await.unwrap().purged, 1);
    place.clock.set(request.key_time.unwrap().after(500 * HOUR));
    let generous = Claim { key_time: request.key_time, ..aged("k", 900 * HOUR) };

    let told = place.options().not_before(KeyClass::new("uuid7"), place.clock.now()).open().await.unwrap();
    assert_eq!(told.claim(&duplicate(&generous)).await.unwrap(), Claimed::TooOld);
    place.clock.advance(Duration::from_micros(1));
    granted(told.claim(&aged("l", 900 * HOUR)).await.unwrap());
    let other = place.options().not_before(KeyClass::new("ulid"), place.clock.now()).open().await.unwrap();
    granted(other.claim(&duplicate(&generous)).await.unwrap());
}

fn aged(key: &str, max_age: Duration, made: Timestamp) -> Claim {
    let age = AgeLimit { max_age, drift: Duration::from_secs(1), class: KeyClass::new("uuid7") };
    let windows = Windows::new(HOUR, 1000 * HOUR).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(age, Lease::default()).unwrap();
    Claim { life, key_time: Some(made), ..claim(key) }
}
