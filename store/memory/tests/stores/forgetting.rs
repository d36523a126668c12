//! A store does not grow with every key it ever saw, and what it forgot it does not run again.

use std::time::Duration;

use idempotency::time::Clock;
use idempotency::{
    AgeLimit, Claim, Claimed, Holder, KeyClass, Lease, Life, List, Recovery, Settled, Store, Timestamp, Windows,
};
use idempotency_memory::{MemoryStore, RECORD_OVERHEAD};

use crate::common::{DEAD_FOR, FORGOTTEN, SECOND, block_on, body, claim, granted, id};
use crate::harness::Memory;

#[tokio::test]
async fn case_31_entries_do_not_outlive_their_windows() {
    const KEYS: u32 = 100_000;
    let Memory { store, clock } = Memory::empty();
    for n in 0..KEYS {
        let holder = granted(&store, &claim(n)).await;
        assert_eq!(store.complete(&holder, &body(10)).await.unwrap(), Settled::Applied);
    }
    assert_eq!(store.len(), KEYS as usize);
    clock.advance(SECOND);
    let swept = store.sweep(usize::MAX).await.unwrap();
    assert_eq!((swept.tombstoned, store.bytes()), (KEYS as usize, KEYS as usize * RECORD_OVERHEAD));
    clock.advance(FORGOTTEN);
    let mut purged = 0;
    loop {
        let swept = store.sweep(10_000).await.unwrap();
        assert!(swept.purged <= 10_000);
        purged += swept.purged;
        if !swept.more {
            break;
        }
    }
    assert_eq!(purged, KEYS as usize);
    assert_eq!((store.len(), store.bytes()), (0, 0));
    // And each key has one holder again, and not two.
    for n in 0..1000 {
        granted(&store, &claim(n)).await;
        assert!(matches!(store.claim(&claim(n)).await.unwrap(), Claimed::InFlight { .. }));
    }
}

#[tokio::test]
async fn a_sweep_looks_at_no_more_than_its_limit() {
    let Memory { store, clock } = Memory::empty();
    for n in 0..1000 {
        let holder = granted(&store, &claim(n)).await;
        assert_eq!(store.renew(&holder, Lease::new(3600 * SECOND).unwrap()).await.unwrap(), Settled::Applied);
    }
    // Each is looked at when a tombstone window after its first lease is over, and stays.
    clock.advance(91 * SECOND);
    let mut sweeps = 1;
    while store.sweep(10).await.unwrap().more {
        sweeps += 1;
    }
    assert_eq!((sweeps, store.len()), (100, 1000));
}

#[test]
fn case_31_removing_an_entry_lets_no_two_holders_in() {
    let Memory { store, clock } = Memory::empty();
    for _ in 0..20 {
        // Every key is claimed from two threads while its old entry is purged beside the claims and by a sweep.
        let grants = std::thread::scope(|scope| {
            let halves = [0, 1].map(|half| {
                let store = store.clone();
                scope.spawn(move || {
                    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                        let mut holders = Vec::new();
                        for n in 0..500 {
                            let claim = claim(n);
                            if let Claimed::Granted(grant) = store.claim(&claim).await.unwrap() {
                                holders.push(Holder { id: claim.id, token: grant.token, nonce: claim.nonce });
                            }
                            if n % 50 == half {
                                store.sweep(20).await.unwrap();
                            }
                        }
                        holders
                    })
                })
            });
            halves.map(|half| half.join().unwrap()).concat()
        });
        assert_eq!(grants.len(), 500);
        for holder in grants {
            assert_eq!(block_on(store.complete(&holder, &body(1))), Settled::Applied);
        }
        clock.advance(FORGOTTEN);
    }
}

#[tokio::test]
async fn a_store_in_use_clears_itself_away_without_a_sweeper() {
    let Memory { store, clock } = Memory::empty();
    let mut most = 0;
    for n in 0..50_000 {
        let holder = granted(&store, &claim(n)).await;
        if n % 2 == 0 {
            assert_eq!(store.complete(&holder, &body(100)).await.unwrap(), Settled::Applied);
        } else {
            assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
        }
        clock.advance(SECOND);
        if n % 500 == 0 {
            most = most.max(store.len());
        }
    }
    // No more than a window's keys and those whose nonces are still dead, looked at a minute late at the most.
    assert!(most < 1000, "{most} at most");
    let payloads = store.bytes() - store.len() * RECORD_OVERHEAD;
    assert!(payloads < 200 * 100, "{payloads} bytes of payloads are left");
}

#[tokio::test]
async fn a_payload_of_a_later_attempt_is_dropped_in_time() {
    let Memory { store, clock } = Memory::empty();
    let first = granted(&store, &claim(0)).await;
    assert_eq!(store.release(&first, DEAD_FOR).await.unwrap(), Settled::Applied);
    clock.advance(2 * SECOND);
    // Now it is due when its token's hold is over, and not before.
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 0);
    let second = granted(&store, &claim(0)).await;
    assert_eq!(store.complete(&second, &body(10)).await.unwrap(), Settled::Applied);
    clock.advance(SECOND);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 1);
    assert_eq!(store.bytes(), RECORD_OVERHEAD);
}

#[tokio::test]
async fn a_key_that_may_have_run_before_the_start_is_too_old() {
    let Memory { store, clock } = Memory::empty();
    let (start, drift) = (clock.now(), 60 * SECOND);
    let limit = AgeLimit { max_age: 3600 * SECOND, drift, class: KeyClass::new("uuid7") };
    let windows = Windows::new(SECOND, 7200 * SECOND).unwrap();
    let life = Life::new(Recovery::Hold, windows).with_age(limit, claim(0).lease).unwrap();
    let dated = |n: u32, key_time: Timestamp| Claim { key_time: Some(key_time), life: life.clone(), ..claim(n) };
    // One that was made before the start may be dated up to the drift after it.
    for key_time in [start.before(drift), start, start.after(drift)] {
        assert_eq!(store.claim(&dated(1, key_time)).await.unwrap(), Claimed::TooOld);
    }
    clock.advance(Duration::from_micros(1));
    granted(&store, &dated(1, start.after(drift).after(Duration::from_micros(1)))).await;
    // Opaque keys have no age.
    granted(&store, &claim(2)).await;
}

#[tokio::test]
async fn a_page_of_a_large_listing_is_the_next_in_order() {
    let Memory { store, .. } = Memory::empty();
    for n in (0..5000).rev() {
        granted(&store, &claim(n)).await;
    }
    let list = List { after: Some(id(4000)), limit: 3, ..List::default() };
    let page = store.list(&list).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id(4001), id(4002), id(4003)]);
    assert_eq!(page.next, Some(id(4003)));
    let list = List { after: Some(id(4996)), limit: 3, ..List::default() };
    let page = store.list(&list).await.unwrap();
    assert_eq!((page.entries.len(), page.next), (3, None));
}

#[test]
fn only_its_own_url_opens_it() {
    assert!(MemoryStore::open("memory:").unwrap().is_empty());
    for url in ["", "memory", "memory:x", "memory://", "MEMORY:", "sqlite:x"] {
        assert!(MemoryStore::open(url).is_err(), "{url:?}");
    }
}
