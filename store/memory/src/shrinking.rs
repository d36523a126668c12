//! What a store that held much takes when it holds little again: seen from inside, by what its shards could hold.

use std::time::Duration;

use bytes::Bytes;
use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Fingerprint, Holder, Lease, Life, Nonce, Outcome, RecordId, Recovery, Settled, Store as _,
    Timestamp, Windows,
};

use crate::MemoryStore;

const SECOND: Duration = Duration::from_secs(1);

fn claim(n: u32) -> Claim {
    let (mut id, mut nonce) = ([0; 32], [0; 16]);
    id[..4].copy_from_slice(&n.to_be_bytes());
    nonce[..4].copy_from_slice(&n.to_be_bytes());
    let windows = Windows::new(SECOND, SECOND).unwrap();
    Claim {
        id: RecordId::from_bytes(id),
        fingerprint: Fingerprint::from_bytes([Fingerprint::VERSION; 33]),
        nonce: Nonce::from_bytes(nonce),
        lease: Lease::default(),
        life: Life::new(Recovery::Hold, windows),
        key_time: None,
        room: 0,
    }
}

async fn execute(store: &MemoryStore<ManualClock>, claim: &Claim, outcome: &Outcome) {
    let Claimed::Granted(grant) = store.claim(claim).await.unwrap() else { panic!("a new key is granted") };
    let holder = Holder { id: claim.id, token: grant.token, nonce: claim.nonce };
    assert_eq!(store.complete(&holder, outcome).await.unwrap(), Settled::Applied);
}

/// Bytes of places for records, used or not.
fn capacity(store: &MemoryStore<ManualClock>) -> usize {
    store.0.shards.iter().map(|shard| shard.lock().capacity()).sum()
}

#[tokio::test]
async fn a_million_records_leave_no_room_behind() {
    const RECORDS: u32 = 1_000_000;
    let clock = ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000));
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let outcome = Outcome::new(201, Bytes::from_static(b"charged"));
    for n in 0..1000 {
        execute(&store, &claim(n), &outcome).await;
    }
    let little = capacity(&store);
    for n in 1000..RECORDS {
        execute(&store, &claim(n), &outcome).await;
    }
    assert_eq!(store.len(), RECORDS as usize);
    assert!(capacity(&store) > 100 * RECORDS as usize);
    clock.advance(SECOND + Duration::from_micros(1));
    while store.sweep(500).await.unwrap().more {}
    assert_eq!((store.len(), store.bytes()), (0, 0));
    let left = capacity(&store);
    assert!(left <= 2 * little, "{left} bytes, {little} with a thousand records");
}
