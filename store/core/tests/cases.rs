//! Real faults of other systems that are faults of a store, or of taking over, each under its number in the project's collection.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Clock as _, Fingerprint, Holder, Lease, Life, Nonce, Outcome, RecordId, Recovery, Settled, State,
    Store, Timestamp, Windows,
};
use idempotency_memory::MemoryStore;

fn claim(recovery: Recovery) -> Claim {
    Claim {
        id: RecordId::from_bytes([7; 32]),
        fingerprint: Fingerprint::of(["body"]),
        nonce: Nonce::random(),
        lease: Lease::new(Duration::from_secs(2)).unwrap(),
        life: Life::new(recovery, Windows::default()),
        key_time: None,
        room: 100,
    }
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000))
}

async fn granted(store: &impl Store, claim: &Claim) -> Holder {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => Holder { id: claim.id, token: grant.token, nonce: claim.nonce },
        other => panic!("not granted: {other:?}"),
    }
}

#[tokio::test]
async fn case_27_beginning_twice_without_finishing_fails_the_second_time() {
    let store = MemoryStore::new();
    granted(&store, &claim(Recovery::Hold)).await;
    assert!(matches!(store.claim(&claim(Recovery::Hold)).await.unwrap(), Claimed::InFlight { .. }));
}

#[tokio::test]
async fn case_32_an_attempt_in_flight_is_held_until_its_lease_ends_and_no_window_ends_it() {
    let clock = clock();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let windows = Windows::new(Duration::from_millis(1), Duration::from_millis(1)).unwrap();
    let first = Claim { life: Life::new(Recovery::Rerun, windows), ..claim(Recovery::Rerun) };
    granted(&store, &first).await;
    clock.advance(Duration::from_millis(1999)); // both windows are long over, the lease is not
    store.sweep(100).await.unwrap();
    assert!(matches!(store.claim(&claim(Recovery::Rerun)).await.unwrap(), Claimed::InFlight { .. }));
    clock.advance(Duration::from_millis(1));
    granted(&store, &claim(Recovery::Rerun)).await;
}

#[tokio::test]
async fn case_33_a_takeover_that_is_late_does_not_destroy_what_was_finished_in_between() {
    let clock = clock();
    let store = FaultyStore::new(MemoryStore::builder().clock(clock.clone()).build());
    let first = granted(&store, &claim(Recovery::Rerun)).await;
    clock.advance(Duration::from_secs(3)); // stale: a takeover would be granted now
    store.next(Op::Claim, Fault::Late(Duration::from_millis(50)));
    let takeover_claim = claim(Recovery::Rerun);
    let takeover = store.claim(&takeover_claim);
    let finish = async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        store.complete(&first, &Outcome::new(201, Bytes::from_static(b"first"))).await.unwrap()
    };
    let (takeover, finished) = tokio::join!(takeover, finish);
    assert_eq!(finished, Settled::Applied);
    let Claimed::Replay { outcome, .. } = takeover.unwrap() else { panic!("taken over") };
    assert_eq!(outcome.payload().unwrap(), "first");
}

#[tokio::test]
async fn case_68_an_attempt_that_overran_its_lease_and_failed_is_not_purged_at_once() {
    let clock = clock();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let holder = granted(&store, &claim(Recovery::Hold)).await;
    clock.advance(Duration::from_secs(60));
    let response = Outcome::new(500, Bytes::from_static(b"failed"));
    assert_eq!(store.mark_in_doubt(&holder, Some(&response)).await.unwrap(), Settled::Applied);
    for lease in [1, 2, 100] {
        store.sweep(100).await.unwrap();
        assert_eq!(store.inspect(&holder.id).await.unwrap().unwrap().state, State::InDoubt);
        let lease = Lease::new(Duration::from_secs(lease)).unwrap();
        let again = store.claim(&Claim { lease, ..claim(Recovery::Rerun) }).await.unwrap();
        let Claimed::InDoubt(doubt) = again else { panic!("not in doubt: {again:?}") };
        assert_eq!(doubt.response.as_ref(), Some(&response));
        clock.advance(Duration::from_secs(3600));
    }
    assert!(clock.now() > Timestamp::from_micros(1_800_000_000_000_000));
}
