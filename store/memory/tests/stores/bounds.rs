//! A bounded store refuses, exactly, and never forgets.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use idempotency::outbound::{Again, BeginCall, Begun, StepLabel, Steps};
use idempotency::time::ManualClock;
use idempotency::{Claim, Claimed, Fingerprint, Holder, Lease, Nonce, Outcome, Settled, State, Store};
use idempotency_memory::{CALL_OVERHEAD, MemoryStore, RECORD_OVERHEAD};

use crate::common::{DEAD_FOR, FORGOTTEN, ROOM, SECOND, WHOLE, block_on, body, claim, granted, id};
use crate::harness::Memory;

async fn is_full(store: &MemoryStore<ManualClock>, claim: &Claim) -> bool {
    match store.claim(claim).await.unwrap() {
        Claimed::Full => true,
        Claimed::Granted(_) => false,
        claimed => panic!("neither full nor granted: {claimed:?}"),
    }
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_answers_for_its_own() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_records(3));
    let mut holders = Vec::new();
    for n in 0..3 {
        holders.push(granted(&store, &claim(n)).await);
    }
    assert_eq!(store.len(), 3);
    for n in 3..1000 {
        assert!(is_full(&store, &claim(n)).await);
        assert_eq!(store.inspect(&id(n)).await.unwrap(), None);
    }
    assert_eq!(store.len(), 3);
    for (n, holder) in holders.iter().enumerate() {
        let n = u32::try_from(n).unwrap();
        assert!(matches!(store.claim(&claim(n)).await.unwrap(), Claimed::InFlight { .. }));
        assert_eq!(store.renew(holder, Lease::default()).await.unwrap(), Settled::Applied);
        assert_eq!(store.complete(holder, &body(10)).await.unwrap(), Settled::Applied);
        assert!(matches!(store.claim(&claim(n)).await.unwrap(), Claimed::Replay { .. }));
        assert!(is_full(&store, &claim(7)).await, "a completed record is kept as well");
    }
}

#[tokio::test]
async fn bytes_are_bounded_to_the_byte() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(2 * WHOLE));
    granted(&store, &claim(0)).await;
    assert!(is_full(&store, &Claim { room: ROOM + 1, ..claim(1) }).await);
    granted(&store, &claim(1)).await;
    assert_eq!(store.bytes(), 2 * WHOLE);
    assert!(is_full(&store, &Claim { room: 0, ..claim(2) }).await);
}

#[tokio::test]
async fn a_completion_is_never_refused() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(2 * WHOLE).max_records(2));
    let (first, second) = (granted(&store, &claim(0)).await, granted(&store, &claim(1)).await);
    assert_eq!(store.complete(&first, &body(ROOM as usize)).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), 2 * WHOLE);
    // Even one that is larger than what its claim asked for.
    assert_eq!(store.mark_in_doubt(&second, Some(&body(3000))).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), WHOLE + RECORD_OVERHEAD + 3000);
    assert_eq!(store.complete(&second, &body(5000)).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), WHOLE + RECORD_OVERHEAD + 5000);
    assert!(is_full(&store, &Claim { room: 0, ..claim(2) }).await);
}

#[tokio::test]
async fn a_completion_returns_the_room_it_does_not_need() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(2 * WHOLE));
    let first = granted(&store, &claim(0)).await;
    granted(&store, &claim(1)).await;
    assert_eq!(store.complete(&first, &body(100).with_location(Some("/1"))).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), WHOLE + RECORD_OVERHEAD + 102);
    let rest = ROOM - 102 - u32::try_from(RECORD_OVERHEAD).unwrap();
    assert!(is_full(&store, &Claim { room: rest + 1, ..claim(2) }).await);
    assert!(!is_full(&store, &Claim { room: rest, ..claim(2) }).await);
    assert_eq!(store.bytes(), 2 * WHOLE);
}

#[tokio::test]
async fn a_doubt_keeps_its_room_until_it_is_resolved() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(WHOLE));
    let holder = granted(&store, &claim(0)).await;
    assert_eq!(store.mark_in_doubt(&holder, None).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), WHOLE);
    assert_eq!(store.complete(&holder, &body(ROOM as usize)).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), WHOLE);
}

#[tokio::test]
async fn a_release_returns_its_room_and_the_next_claim_must_find_some() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(2 * WHOLE));
    let first = granted(&store, &claim(0)).await;
    assert_eq!(store.release(&first, DEAD_FOR).await.unwrap(), Settled::Applied);
    assert_eq!(store.bytes(), RECORD_OVERHEAD);
    let second = granted(&store, &Claim { room: ROOM - u32::try_from(RECORD_OVERHEAD).unwrap(), ..claim(1) }).await;
    let third = granted(&store, &Claim { room: ROOM - u32::try_from(RECORD_OVERHEAD).unwrap(), ..claim(2) }).await;
    assert!(is_full(&store, &claim(0)).await);
    assert_eq!(store.inspect(&id(0)).await.unwrap().map(|entry| entry.state), Some(State::Released));
    assert_eq!(store.complete(&second, &body(0)).await.unwrap(), Settled::Applied);
    store.abandon(&third.id, third.nonce, DEAD_FOR).await.unwrap();
    assert!(!is_full(&store, &claim(0)).await);
}

/// Others wait for the shard meanwhile.
#[tokio::test]
async fn a_claim_that_finds_the_store_full_clears_away_no_more_than_it_needs_for_room() {
    const KEYS: u32 = 10_000;
    let Memory { store, clock } = Memory::with(|builder| builder.max_records(KEYS as usize).shards(1));
    for n in 0..KEYS {
        let holder = granted(&store, &claim(n)).await;
        assert_eq!(store.complete(&holder, &body(10)).await.unwrap(), Settled::Applied);
    }
    clock.advance(FORGOTTEN);
    assert!(!is_full(&store, &claim(KEYS)).await);
    assert!(store.len() > KEYS as usize / 2, "{} of {KEYS} are left", store.len());
    while store.sweep(usize::MAX).await.unwrap().more {}
    assert_eq!(store.len(), 1);
}

#[tokio::test]
async fn a_takeover_is_never_refused() {
    let Memory { store, clock } = Memory::with(|builder| builder.max_bytes(WHOLE).max_records(1));
    granted(&store, &claim(0)).await;
    store.abandon(&id(9), Nonce::random(), DEAD_FOR).await.unwrap();
    clock.advance(30 * SECOND);
    let second = granted(&store, &Claim { room: 10 * ROOM, ..claim(0) }).await;
    assert_eq!(store.complete(&second, &body(1)).await.unwrap(), Settled::Applied);
}

#[tokio::test]
async fn a_record_that_runs_again_keeps_the_room_of_its_steps() {
    let with_a_step = WHOLE + CALL_OVERHEAD;
    let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(with_a_step + RECORD_OVERHEAD));
    let mut holder = granted(&store, &claim(0)).await;
    let ask = BeginCall {
        holder,
        label: StepLabel::parse("transfer").unwrap(),
        request: Fingerprint::of(["10 EUR"]),
        nonce: Nonce::random(),
        timeout: SECOND,
        quiet: SECOND,
        lease_needed: SECOND,
        again: Again::Never,
    };
    assert!(matches!(store.begin_call(&ask).await.unwrap(), Begun::Go { call: 1, .. }));
    let with_a_step = store.bytes();
    for _ in 0..20 {
        assert_eq!(store.release(&holder, DEAD_FOR).await.unwrap(), Settled::Applied);
        holder = granted(&store, &claim(0)).await;
        assert_eq!(store.bytes(), with_a_step);
    }
    granted(&store, &Claim { room: 0, ..claim(1) }).await;
    assert!(is_full(&store, &Claim { room: 0, ..claim(2) }).await);
}

#[tokio::test]
async fn an_abandon_is_never_refused() {
    let Memory { store, .. } = Memory::with(|builder| builder.max_records(1));
    granted(&store, &claim(0)).await;
    let late = claim(1);
    store.abandon(&late.id, late.nonce, DEAD_FOR).await.unwrap();
    assert_eq!(store.claim(&late).await.unwrap(), Claimed::Refused);
    assert_eq!(store.len(), 2);
}

#[tokio::test]
async fn what_is_over_does_not_keep_out_what_is_new() {
    let Memory { store, clock } = Memory::with(|builder| builder.max_records(500));
    for n in 0..500 {
        let holder = granted(&store, &claim(n)).await;
        let settled = match n % 3 {
            0 => store.complete(&holder, &body(10)).await.unwrap(),
            1 => store.release(&holder, DEAD_FOR).await.unwrap(),
            _ => store.mark_in_doubt(&holder, None).await.unwrap(),
        };
        assert_eq!(settled, Settled::Applied);
    }
    assert!(is_full(&store, &claim(1000)).await, "nothing is over yet");
    clock.advance(FORGOTTEN);
    for n in 1000..1500 {
        granted(&store, &claim(n)).await;
    }
    assert!(is_full(&store, &claim(1500)).await);
    assert_eq!(store.len(), 500);
    let swept = store.sweep(1000).await.unwrap();
    assert_eq!((swept.purged, swept.escapes), (500, 166), "what was cleared away beside claims is still reported");
}

#[tokio::test]
async fn a_payload_that_is_over_does_not_keep_out_what_is_new() {
    let Memory { store, clock } = Memory::with(|builder| builder.max_bytes(WHOLE + RECORD_OVERHEAD));
    let holder = granted(&store, &claim(0)).await;
    assert_eq!(store.complete(&holder, &body(ROOM as usize)).await.unwrap(), Settled::Applied);
    assert!(is_full(&store, &claim(1)).await);
    clock.advance(SECOND);
    assert!(!is_full(&store, &claim(1)).await);
    assert!(matches!(store.claim(&claim(0)).await.unwrap(), Claimed::Executed(_)));
    assert_eq!(store.bytes(), WHOLE + RECORD_OVERHEAD);
}

#[tokio::test]
async fn a_record_in_a_new_life_has_the_room_of_its_claim() {
    let Memory { store, clock } = Memory::with(|builder| builder.max_bytes(WHOLE));
    let holder = granted(&store, &claim(0)).await;
    assert_eq!(store.complete(&holder, &body(ROOM as usize)).await.unwrap(), Settled::Applied);
    clock.advance(60 * SECOND);
    assert!(is_full(&store, &Claim { room: ROOM + 1, ..claim(0) }).await);
    granted(&store, &claim(0)).await;
    assert_eq!((store.len(), store.bytes()), (1, WHOLE));
}

/// Sends claims of keys `from..to` from eight threads at once and counts the grants.
fn race(store: &MemoryStore<ManualClock>, from: u32, to: u32) -> usize {
    const THREADS: u32 = 8;
    let (grants, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (grants, barrier) = (&grants, &barrier);
            scope.spawn(move || {
                barrier.wait();
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                    for n in (from..to).filter(|n| n % THREADS == thread) {
                        if !is_full(store, &claim(n)).await {
                            grants.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            });
        }
    });
    grants.into_inner()
}

#[test]
fn racing_claims_fill_the_store_exactly() {
    for max in [1, 7, 100, 1000] {
        let Memory { store, .. } = Memory::with(|builder| builder.max_records(max));
        assert_eq!(race(&store, 0, 4000), max);
        assert_eq!(store.len(), max);
        let Memory { store, .. } = Memory::with(|builder| builder.max_bytes(max * WHOLE + WHOLE - 1));
        assert_eq!(race(&store, 0, 4000), max);
        assert_eq!(store.bytes(), max * WHOLE);
    }
}

#[test]
fn what_is_counted_stays_exact_over_everything_that_happens() {
    const MAX: usize = 300;
    let Memory { store, clock } = Memory::with(|builder| builder.max_records(MAX).max_bytes(MAX * WHOLE));
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let (store, clock) = (&store, &clock);
            scope.spawn(move || {
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
                    for step in 0..4000_u32 {
                        let claim = claim((step * 7 + thread * 31) % 600);
                        let Claimed::Granted(grant) = store.claim(&claim).await.unwrap() else { continue };
                        let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
                        match step % 6 {
                            0 => drop(store.complete(&holder, &body(step as usize % 1000)).await.unwrap()),
                            1 => drop(store.release(&holder, SECOND).await.unwrap()),
                            2 => drop(store.mark_in_doubt(&holder, Some(&body(1500))).await.unwrap()),
                            3 => store.abandon(&holder.id, holder.nonce, SECOND).await.unwrap(),
                            4 => drop(store.sweep(3).await.unwrap()),
                            _ => clock.advance(10 * SECOND),
                        }
                    }
                });
            });
        }
    });
    clock.advance(FORGOTTEN);
    let swept = block_on(store.sweep(usize::MAX));
    assert!(swept.purged > 0 && !swept.more, "{swept:?}");
    assert_eq!((store.len(), store.bytes()), (0, 0));
    // The count against the limits is back at nothing too: exactly as many fit as at first.
    assert_eq!(race(&store, 0, 4000), MAX);
    assert_eq!((store.len(), store.bytes()), (MAX, MAX * WHOLE));
}

#[tokio::test]
async fn a_slice_of_a_large_buffer_is_kept_as_what_it_is() {
    let Memory { store, .. } = Memory::empty();
    let holder = granted(&store, &claim(0)).await;
    let buffer = Bytes::from(vec![7; 1 << 20]);
    assert_eq!(store.complete(&holder, &Outcome::new(200, buffer.slice(..10))).await.unwrap(), Settled::Applied);
    assert!(buffer.is_unique(), "the store holds on to the whole buffer");
    assert_eq!(store.bytes(), RECORD_OVERHEAD + 10);
}
