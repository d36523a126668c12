//! What tests ask of a store, and what they expect of its answers. What is not as expected panics and so fails the test.

use std::time::Duration;

use idempotency::{
    Claim, Claimed, Fingerprint, Grant, Holder, Key, Lease, Life, Nonce, Outcome, RecordId, Recovery, ScopeId, Settled,
    Store, Windows,
};

/// An hour.
pub const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test waits for a connection or a lock that will be free, however slow the machine.
pub const PATIENT: Duration = Duration::from_secs(60);
/// How long nonces are dead.
pub const DEAD_FOR: Duration = Duration::from_secs(62);

/// Hold, an hour, a day.
#[must_use]
pub fn life() -> Life {
    Life::new(Recovery::Hold, Windows::new(HOUR, 24 * HOUR).expect("windows in order"))
}

/// The record of a key in the global scope.
#[must_use]
pub fn id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).expect("a key"))
}

/// A claim of a key, with a nonce of its own.
#[must_use]
pub fn claim(key: &str) -> Claim {
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

/// An outcome with this payload.
#[must_use]
pub fn outcome(body: &'static str) -> Outcome {
    Outcome::new(201, body.as_bytes().into()).with_location(Some("/charges/1"))
}

/// The grant, which it must be.
#[allow(clippy::must_use_candidate, reason = "an assertion as well")]
#[track_caller]
pub fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        claimed => panic!("not granted: {claimed:?}"),
    }
}

/// Claims, and must be granted.
pub async fn grant(store: &impl Store, claim: &Claim) -> Holder {
    let grant = granted(store.claim(claim).await.expect("an answer"));
    Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
}

/// Claims and completes.
pub async fn run(store: &impl Store, claim: &Claim, outcome: &Outcome) -> Holder {
    let holder = grant(store, claim).await;
    assert_eq!(store.complete(&holder, outcome).await.expect("an answer"), Settled::Applied);
    holder
}

/// The same request again.
#[must_use]
pub fn duplicate(claim: &Claim) -> Claim {
    Claim { nonce: Nonce::random(), ..claim.clone() }
}

/// The same request again. It doubles the window of a tombstone that it hits.
#[must_use]
pub fn renewing(claim: &Claim) -> Claim {
    let windows = claim.life.windows();
    let longer = Windows::new(windows.response(), windows.tombstone() * 2).expect("windows in order");
    let windows = longer.renewed_up_to(longer.tombstone()).expect("a cap of at least the window");
    Claim { life: claim.life.clone().with_windows(windows), ..duplicate(claim) }
}

/// The recorded outcome, which it must be.
#[allow(clippy::must_use_candidate, reason = "an assertion as well")]
#[track_caller]
pub fn replayed(claimed: Claimed) -> Outcome {
    match claimed {
        Claimed::Replay { outcome, .. } => outcome,
        claimed => panic!("not a replay: {claimed:?}"),
    }
}
