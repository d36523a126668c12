//! Claims of numbered keys, and the windows they all have.

use std::time::Duration;

use bytes::Bytes;
use idempotency::time::ManualClock;
use idempotency::{
    Claim, Claimed, Fingerprint, Holder, Lease, Life, Nonce, Outcome, RecordId, Recovery, Store, StoreError,
    TOKEN_HOLD, Windows,
};
use idempotency_memory::{MemoryStore, RECORD_OVERHEAD};

pub(crate) const ROOM: u32 = 1000;
pub(crate) const WHOLE: usize = RECORD_OVERHEAD + ROOM as usize;
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const DEAD_FOR: Duration = Duration::from_secs(120);
/// Past every window of [`claim`] and past the token hold.
pub(crate) const FORGOTTEN: Duration = TOKEN_HOLD.saturating_add(Duration::from_secs(120));

pub(crate) fn id(n: u32) -> RecordId {
    let mut id = [0; 32];
    id[..4].copy_from_slice(&n.to_be_bytes());
    RecordId::from_bytes(id)
}

pub(crate) fn claim(n: u32) -> Claim {
    let windows = Windows::new(SECOND, 60 * SECOND).unwrap();
    Claim {
        id: id(n),
        fingerprint: Fingerprint::from_bytes([Fingerprint::VERSION; 33]),
        nonce: Nonce::random(),
        lease: Lease::new(30 * SECOND).unwrap(),
        life: Life::new(Recovery::Rerun, windows),
        key_time: None,
        room: ROOM,
    }
}

pub(crate) fn body(length: usize) -> Outcome {
    Outcome::new(200, Bytes::from(vec![b'x'; length]))
}

pub(crate) async fn granted(store: &MemoryStore<ManualClock>, claim: &Claim) -> Holder {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => Holder { id: claim.id, token: grant.token, nonce: claim.nonce },
        claimed => panic!("not granted: {claimed:?}"),
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, StoreError>>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future).unwrap()
}
