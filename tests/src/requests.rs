//! What is asked of a store, and what is expected of its answers.

use std::time::Duration;

use idempotency::{
    Claim, Claimed, Fingerprint, Grant, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, Recovery, ScopeId, Settled,
    Store, Windows,
};

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test waits for a connection or a lock that will be free, however slow the machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);
pub(crate) const DEAD_FOR: Duration = Duration::from_secs(62);

pub(crate) fn life() -> Life {
    Life::new(Recovery::Hold, Windows::new(HOUR, 24 * HOUR).unwrap())
}

pub(crate) fn id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap())
}

pub(crate) fn claim(key: &str) -> Claim {
    Claim {
        id: id(key),
        fingerprint: Fingerprint::of([key]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life: life(),
        key_time: None,
        room: 1024,
    }
}

pub(crate) fn outcome(body: &'static str) -> Outcome {
    Outcome::new(201, body.as_bytes().into()).with_location(Some("/charges/1"))
}

#[track_caller]
pub(crate) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("not granted: {claimed:?}"),
    }
}

/// Claims, and must be granted.
pub(crate) async fn grant(store: &impl Store, claim: &Claim) -> Holder {
    let grant = granted(store.claim(claim).await.unwrap());
    Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
}

/// Claims and completes.
pub(crate) async fn run(store: &impl Store, claim: &Claim, outcome: &Outcome) -> Holder {
    let holder = grant(store, claim).await;
    assert_eq!(store.complete(&holder, outcome).await.unwrap(), Settled::Applied);
    holder
}

/// The same request again.
pub(crate) fn duplicate(claim: &Claim) -> Claim {
    Claim { nonce: Nonce::random(), ..claim.clone() }
}

#[track_caller]
pub(crate) fn replayed(claimed: Claimed) -> Outcome {
    match claimed {
        Claimed::Replay { outcome, .. } => outcome,
        claimed => panic!("not a replay: {claimed:?}"),
    }
}
