//! A completed record is packed, and nobody can tell.

use std::time::Duration;

use bytes::Bytes;
use idempotency::time::Clock;
use idempotency::{
    Claim, Claimed, Fingerprint, Life, List, Nonce, Outcome, Recovery, Settled, State, Store, Tombstone, Windows,
};

use crate::common::{DEAD_FOR, FORGOTTEN, SECOND, body, claim, granted, id};
use crate::harness::Memory;

fn asks(n: u32, request: &str) -> Claim {
    Claim { fingerprint: Fingerprint::of([request]), ..claim(n) }
}

fn one_shard() -> Memory {
    Memory::with(|builder| builder.shards(1))
}

#[tokio::test]
async fn a_tombstone_still_tells_another_request_from_its_own() {
    let Memory { store, clock } = one_shard();
    for n in 0..3 {
        let holder = granted(&store, &asks(n, "10 EUR")).await;
        assert_eq!(store.complete(&holder, &body(10)).await.unwrap(), Settled::Applied);
    }
    clock.advance(2 * SECOND);
    assert_eq!(store.sweep(10).await.unwrap().tombstoned, 3);
    // One as it is, one to which something was added, one that is held for longer by a hit.
    store.abandon(&id(1), Nonce::random(), DEAD_FOR).await.unwrap();
    let windows = Windows::new(SECOND, 60 * SECOND).unwrap().renewed_up_to(3600 * SECOND).unwrap();
    let renewing = Claim { life: Life::new(Recovery::Rerun, windows), ..asks(2, "10 EUR") };
    assert!(matches!(store.claim(&renewing).await.unwrap(), Claimed::Executed(_)));
    for n in 0..3 {
        for _ in 0..2 {
            assert_eq!(store.claim(&asks(n, "99 EUR")).await.unwrap(), Claimed::Mismatch);
            let again = store.claim(&asks(n, "10 EUR")).await.unwrap();
            assert!(matches!(again, Claimed::Executed(Tombstone { status: 200, .. })), "{n}: {again:?}");
        }
    }
    clock.advance(59 * SECOND);
    assert!(matches!(store.claim(&asks(2, "10 EUR")).await.unwrap(), Claimed::Executed(_)));
    granted(&store, &asks(0, "99 EUR")).await;
}

#[tokio::test]
async fn outcomes_of_any_size_come_back_whole_while_others_come_and_go() {
    let Memory { store, clock } = one_shard();
    let outcome = |n: u32| {
        let bytes: Vec<u8> = (0..[0, 1, 300, 2048, 2049, 20_000][n as usize % 6]).map(|i| (i * 7 + n) as u8).collect();
        Outcome::new(200 + (n % 7) as u16, Bytes::from(bytes))
            .with_location(n.is_multiple_of(5).then_some("/charges/1"))
    };
    for n in 0..3000 {
        let holder = granted(&store, &claim(n)).await;
        assert_eq!(store.complete(&holder, &outcome(n)).await.unwrap(), Settled::Applied);
        clock.advance(SECOND / 500);
        // Back to those of the last second, which is the response window.
        for back in [0, 1, 100, 400] {
            let Some(n) = n.checked_sub(back) else { continue };
            let Claimed::Replay { outcome: replayed, .. } = store.claim(&claim(n)).await.unwrap() else {
                panic!("{n} is not replayed")
            };
            assert_eq!(replayed, outcome(n));
        }
        if let Some(n) = n.checked_sub(600) {
            let Claimed::Executed(tombstone) = store.claim(&claim(n)).await.unwrap() else {
                panic!("{n} is no tombstone")
            };
            assert_eq!((tombstone.status, tombstone.location.as_deref()), (outcome(n).status(), outcome(n).location()));
        }
    }
    clock.advance(FORGOTTEN);
    while store.sweep(100).await.unwrap().more {}
    assert_eq!((store.len(), store.bytes()), (0, 0));
}

#[tokio::test]
async fn windows_of_many_lengths_end_each_in_time() {
    let Memory { store, clock } = one_shard();
    let start = clock.now();
    // More than it has queues for, and in no order.
    let window = |n: u32| SECOND * (n * 37 % 200 + 1);
    for n in 0..200 {
        let windows = Windows::new(window(n), 2 * window(n)).unwrap();
        let holder = granted(&store, &Claim { life: Life::new(Recovery::Hold, windows), ..claim(n) }).await;
        let kept = if n % 3 == 0 { Outcome::not_kept(204) } else { body(10) };
        assert_eq!(store.complete(&holder, &kept).await.unwrap(), Settled::Applied);
    }
    for second in 1..=400 {
        clock.set(start.after(SECOND * second).after(Duration::from_micros(1)));
        while store.sweep(7).await.unwrap().more {}
        let list = List { limit: 1000, ..List::default() };
        for entry in store.list(&list).await.unwrap().entries {
            let n = u32::from_be_bytes(entry.id.as_bytes()[..4].try_into().unwrap());
            let whole = n % 3 != 0 && window(n) > SECOND * second;
            assert_eq!(entry.state, if whole { State::Completed } else { State::Tombstone }, "{n} after {second} s");
        }
        let live = (0..200).filter(|n| 2 * window(*n) > SECOND * second).count();
        assert_eq!(store.len(), live, "after {second} s");
    }
    assert!(store.is_empty() && store.bytes() == 0);
}
