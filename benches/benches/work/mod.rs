//! What the benches ask of a store.

use bytes::Bytes;
use idempotency::{Claim, Fingerprint, Key, Lease, Life, Nonce, Outcome, RecordId, ScopeId};

pub(crate) fn claim(key: &str, life: Life) -> Claim {
    Claim {
        id: RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap()),
        fingerprint: Fingerprint::of(["10 EUR"]),
        nonce: Nonce::random(),
        lease: Lease::default(),
        life,
        key_time: None,
        room: 1024,
    }
}

pub(crate) fn outcome(body: Bytes) -> Outcome {
    Outcome::new(201, body).with_location(Some("/charges/1"))
}
