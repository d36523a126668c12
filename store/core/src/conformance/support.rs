//! What behaviours are written with: one key at a store, and an attempt that holds it.

use std::time::Duration;

use bytes::Bytes;

use super::Harness;
use crate::{
    Claim, Claimed, Doubt, Entry, FencingToken, Fingerprint, Grant, Holder, Key, Lease, Life, Nonce, Outcome, RecordId,
    Recovery, Resolve, ResolveVerdict, Resolved, ScopeId, Settled, State, Store, StoreError, Swept, Timestamp, Windows,
};

/// Shorter than the token hold, so that a sweep has payloads to drop before it has rows to delete.
pub(super) const RESPONSE: Duration = Duration::from_secs(600);
/// Longer than the token hold, so that it is the window that decides when a completed row goes.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(3 * 3600);
pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const DEAD_FOR: Duration = Duration::from_secs(120);
pub(super) const BODY: &[u8] = b"the first answer";

/// The least step of time that decides: a boundary is not reached one tick before it, and is reached at it.
pub(super) fn tick(harness: &impl Harness) -> Duration {
    if harness.exact_clock() { Duration::from_micros(1) } else { Duration::from_secs(5) }
}

/// Moves the clock to one tick before the end of `duration`.
pub(super) async fn almost(harness: &impl Harness, duration: Duration) {
    harness.advance(duration - tick(harness)).await;
}

/// Moves the clock over the tick that [`almost`] left.
pub(super) async fn arrive(harness: &impl Harness) {
    harness.advance(tick(harness)).await;
}

/// The same duration, as far as the harness's clock can tell.
#[track_caller]
pub(super) fn assert_lasts(harness: &impl Harness, actual: Duration, expected: Duration) {
    if harness.exact_clock() {
        assert_eq!(actual, expected);
    } else {
        assert!(actual.abs_diff(expected) <= tick(harness), "{actual:?} is not about {expected:?}");
    }
}

/// The store's clock, read off the token that a new key is granted.
pub(super) async fn store_time(harness: &impl Harness) -> Timestamp {
    let token = Subject::new(harness).grant().await.holder.token;
    Timestamp::from_micros(i64::try_from(token.get()).expect("a token is below 2^53"))
}

#[track_caller]
pub(super) fn ok<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("the store could not say: {:?}", error.kind()))
}

pub(super) fn lease(length: Duration) -> Lease {
    Lease::new(length).expect("a lease from 1 ms to 36500 days")
}

pub(super) fn windows(response: Duration, tombstone: Duration) -> Windows {
    Windows::new(response, tombstone).expect("windows in order")
}

pub(super) fn life(recovery: Recovery) -> Life {
    Life::new(recovery, windows(RESPONSE, TOMBSTONE))
}

pub(super) fn outcome() -> Outcome {
    Outcome::new(201, Bytes::from_static(BODY)).with_location(Some("/charges/1"))
}

pub(super) fn other_outcome() -> Outcome {
    Outcome::new(500, Bytes::from_static(b"another answer"))
}

/// The record of a key by this name.
pub(super) fn named(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).expect("a key"))
}

pub(super) async fn sweep(harness: &impl Harness) -> Swept {
    ok(harness.store().sweep(1000).await)
}

/// One key at a store. What it claims is `claim`, with a nonce that nobody has used yet unless said otherwise.
pub(super) struct Subject<'h, H: Harness> {
    pub(super) harness: &'h H,
    pub(super) claim: Claim,
}

impl<'h, H: Harness> Subject<'h, H> {
    /// A key nobody has claimed, held after a lost attempt.
    pub(super) fn new(harness: &'h H) -> Self {
        Self::with(harness, life(Recovery::Hold))
    }

    /// A key nobody has claimed, run again after a lost attempt.
    pub(super) fn rerun(harness: &'h H) -> Self {
        Self::with(harness, life(Recovery::Rerun))
    }

    pub(super) fn with(harness: &'h H, life: Life) -> Self {
        let mut id = [0; 32];
        id[..16].copy_from_slice(Nonce::random().as_bytes());
        id[16..].copy_from_slice(Nonce::random().as_bytes());
        Self::of(harness, RecordId::from_bytes(id), life)
    }

    pub(super) fn of(harness: &'h H, id: RecordId, life: Life) -> Self {
        let claim = Claim {
            id,
            fingerprint: Fingerprint::of(["the request"]),
            nonce: Nonce::random(),
            lease: lease(LEASE),
            life,
            key_time: None,
            room: 1024,
        };
        Self { harness, claim }
    }

    /// The same key as another client or node sees it.
    pub(super) fn but(&self, change: impl FnOnce(&mut Claim)) -> Self {
        let mut claim = self.claim.clone();
        change(&mut claim);
        Self { harness: self.harness, claim }
    }

    pub(super) fn with_fingerprint(&self, fingerprint: Fingerprint) -> Self {
        self.but(|claim| claim.fingerprint = fingerprint)
    }

    pub(super) fn with_life(&self, life: Life) -> Self {
        self.but(|claim| claim.life = life)
    }

    pub(super) async fn claim(&self) -> Claimed {
        self.claim_with(Nonce::random()).await
    }

    pub(super) async fn claim_with(&self, nonce: Nonce) -> Claimed {
        let claim = Claim { nonce, ..self.claim.clone() };
        ok(self.harness.store().claim(&claim).await)
    }

    #[track_caller]
    pub(super) fn attempt(&self, nonce: Nonce, claimed: Claimed) -> Attempt<'h, H> {
        let Claimed::Granted(grant) = claimed else { panic!("not granted: {claimed:?}") };
        let holder = Holder { id: self.claim.id, token: grant.token, nonce };
        Attempt { harness: self.harness, holder, grant }
    }

    /// Claims, and must be granted.
    pub(super) async fn grant(&self) -> Attempt<'h, H> {
        let nonce = Nonce::random();
        let claimed = self.claim_with(nonce).await;
        self.attempt(nonce, claimed)
    }

    /// Claims, and must be told that it is in doubt.
    pub(super) async fn doubt(&self) -> Doubt {
        match self.claim().await {
            Claimed::InDoubt(doubt) => doubt,
            claimed => panic!("not in doubt: {claimed:?}"),
        }
    }

    pub(super) async fn abandon(&self, nonce: Nonce) {
        ok(self.harness.store().abandon(&self.claim.id, nonce, DEAD_FOR).await);
    }

    pub(super) async fn resolve(&self, token_seen: FencingToken, verdict: ResolveVerdict) -> Resolved {
        let resolve =
            Resolve { id: self.claim.id, token_seen, verdict, who: "ops".to_owned(), why: "looked".to_owned() };
        ok(self.harness.store().resolve(&resolve).await)
    }

    pub(super) async fn happened(&self, token_seen: FencingToken) -> Resolved {
        self.resolve(token_seen, ResolveVerdict::Happened(outcome())).await
    }

    pub(super) async fn did_not_happen(&self, token_seen: FencingToken) -> Resolved {
        self.resolve(token_seen, ResolveVerdict::DidNotHappen { fence_token: None }).await
    }

    pub(super) async fn inspect(&self) -> Option<Entry> {
        ok(self.harness.store().inspect(&self.claim.id).await)
    }

    pub(super) async fn entry(&self) -> Entry {
        self.inspect().await.expect("there is a record")
    }

    /// The record as an operator sees it, without what changes as time goes by.
    pub(super) async fn entry_without_age(&self) -> Option<Entry> {
        self.inspect().await.map(|entry| Entry { age: Duration::ZERO, ..entry })
    }

    pub(super) async fn state(&self) -> Option<State> {
        self.inspect().await.map(|entry| entry.state)
    }
}

/// Somebody who was granted a claim, and may not have it any more.
pub(super) struct Attempt<'h, H: Harness> {
    pub(super) harness: &'h H,
    pub(super) holder: Holder,
    pub(super) grant: Grant,
}

impl<H: Harness> Attempt<'_, H> {
    pub(super) async fn complete(&self) -> Settled {
        self.complete_with(&outcome()).await
    }

    pub(super) async fn complete_with(&self, outcome: &Outcome) -> Settled {
        ok(self.harness.store().complete(&self.holder, outcome).await)
    }

    pub(super) async fn renew(&self) -> Settled {
        self.renew_for(LEASE).await
    }

    pub(super) async fn renew_for(&self, length: Duration) -> Settled {
        ok(self.harness.store().renew(&self.holder, lease(length)).await)
    }

    pub(super) async fn release(&self) -> Settled {
        ok(self.harness.store().release(&self.holder, DEAD_FOR).await)
    }

    pub(super) async fn mark(&self, response: Option<&Outcome>) -> Settled {
        ok(self.harness.store().mark_in_doubt(&self.holder, response).await)
    }

    /// Sends every message there is, and none may do anything.
    pub(super) async fn is_superseded(&self) {
        assert_eq!(self.complete_with(&other_outcome()).await, Settled::Superseded, "complete");
        assert_eq!(self.renew().await, Settled::Superseded, "renew");
        assert_eq!(self.mark(Some(&other_outcome())).await, Settled::Superseded, "mark in doubt");
        assert_eq!(self.mark(None).await, Settled::Superseded, "mark in doubt without a response");
        assert_eq!(self.release().await, Settled::Superseded, "release");
    }
}

/// The outcome that a claim replays.
#[track_caller]
pub(super) fn replayed(claimed: Claimed) -> Outcome {
    match claimed {
        Claimed::Replay { outcome, .. } => outcome,
        claimed => panic!("not a replay: {claimed:?}"),
    }
}
