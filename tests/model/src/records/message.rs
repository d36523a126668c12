//! What travels between clients and the store, small enough to be part of a state, and as the core's own messages.

use std::time::Duration;

use bytes::Bytes;
use idempotency::{
    Claim, Claimed, FencingToken, Fingerprint, Holder, Lease, Life, Nonce, Outcome, RecordId, Recovery, Resolve,
    ResolveVerdict, Resolved, Settled, Store, StoreError, Windows,
};

use super::Setting;

/// A nonce: the client that made it, and its number. What a resolution puts in its place belongs to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub u8);

impl Name {
    /// The `serial`th of `client`.
    #[must_use]
    pub const fn new(client: u8, serial: u8) -> Self {
        Self(client * 8 + serial + 1)
    }

    /// Whose it is.
    #[must_use]
    pub const fn client(self) -> usize {
        ((self.0 - 1) / 8) as usize
    }

    /// As a bit of a set.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << (self.0 % 32)
    }

    /// As the core's.
    #[must_use]
    pub const fn nonce(self) -> Nonce {
        Nonce::from_bytes([self.0; 16])
    }

    /// From the core's.
    #[must_use]
    pub const fn of(nonce: Nonce) -> Self {
        Self(nonce.as_bytes()[0])
    }
}

/// The outcome that an operator found out.
pub const FOUND: u8 = 0xee;

/// A message to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `Store::claim` of this nonce's client.
    Claim(Name),
    /// `Store::renew`.
    Renew(Own),
    /// `Store::complete`, with the nonce as outcome.
    Complete(Own),
    /// `Store::release`.
    Release(Own),
    /// `Store::mark_in_doubt`, without a response.
    MarkInDoubt(Own),
    /// `Store::abandon`.
    Abandon(Name),
    /// `Store::resolve` as happened.
    ResolveHappened(FencingToken),
    /// `Store::resolve` as not happened, with the token that the fence was opened with.
    ResolveDidNotHappen(FencingToken, Option<FencingToken>),
}

/// What a holder names: token and nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Own {
    /// The token of the grant.
    pub token: FencingToken,
    /// The nonce of the claim.
    pub name: Name,
}

/// A message on its way. Its order is arbitrary and fixed: a network is a sorted list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// What is asked.
    pub op: Op,
    /// A second one of its kind, whose answer nobody hears.
    pub copy: bool,
}

/// A message as the core has it.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named after the operations of `Store`")]
pub enum Request {
    Claim(Claim),
    Renew(Holder, Lease),
    Complete(Holder, Outcome),
    Release(Holder, Duration),
    MarkInDoubt(Holder),
    Abandon(RecordId, Nonce, Duration),
    Resolve(Resolve),
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after what they hold")]
pub enum Answer {
    Claimed(Claimed),
    Settled(Settled),
    Resolved(Resolved),
    Abandoned,
}

impl Request {
    /// Asks a store.
    ///
    /// # Errors
    /// The store's.
    pub async fn ask(&self, store: &impl Store) -> Result<Answer, StoreError> {
        Ok(match self {
            Self::Claim(claim) => Answer::Claimed(store.claim(claim).await?),
            Self::Renew(holder, lease) => Answer::Settled(store.renew(holder, *lease).await?),
            Self::Complete(holder, outcome) => Answer::Settled(store.complete(holder, outcome).await?),
            Self::Release(holder, dead_for) => Answer::Settled(store.release(holder, *dead_for).await?),
            Self::MarkInDoubt(holder) => Answer::Settled(store.mark_in_doubt(holder, None).await?),
            Self::Abandon(id, nonce, dead_for) => {
                store.abandon(id, *nonce, *dead_for).await?;
                Answer::Abandoned
            }
            Self::Resolve(resolve) => Answer::Resolved(store.resolve(resolve).await?),
        })
    }
}

impl Op {
    /// As the core has it, for the record `id`.
    #[must_use]
    pub fn request(self, id: RecordId, setting: &Setting) -> Request {
        let holder = |own: Own| Holder { id, token: own.token, nonce: own.name.nonce() };
        let resolve = |token_seen, verdict| {
            Request::Resolve(Resolve { id, token_seen, verdict, who: "operator".to_owned(), why: "looked".to_owned() })
        };
        match self {
            Self::Claim(name) => {
                let client = setting.clients[name.client()];
                Request::Claim(Claim {
                    id,
                    fingerprint: Fingerprint::of([[client.fingerprint]]),
                    nonce: name.nonce(),
                    lease: setting.lease(),
                    life: setting.life(client.recovery),
                    key_time: None,
                    room: 64,
                })
            }
            Self::Renew(own) => Request::Renew(holder(own), setting.lease()),
            Self::Complete(own) => Request::Complete(holder(own), outcome(own.name.0)),
            Self::Release(own) => Request::Release(holder(own), setting.dead_for()),
            Self::MarkInDoubt(own) => Request::MarkInDoubt(holder(own)),
            Self::Abandon(name) => Request::Abandon(id, name.nonce(), setting.dead_for()),
            Self::ResolveHappened(token) => resolve(token, ResolveVerdict::Happened(outcome(FOUND))),
            Self::ResolveDidNotHappen(token, fence_token) => {
                resolve(token, ResolveVerdict::DidNotHappen { fence_token })
            }
        }
    }
}

fn outcome(what: u8) -> Outcome {
    Outcome::new(201, Bytes::copy_from_slice(&[what]))
}

/// What a recorded outcome says; nothing when its payload is not kept.
#[must_use]
pub fn told(outcome: &Outcome) -> Option<u8> {
    outcome.payload().and_then(|payload| payload.first().copied())
}

impl Setting {
    pub(super) fn life(&self, recovery: Recovery) -> Life {
        // Whole ticks, and the tombstone window is the longer: `Windows` takes them.
        let windows = Windows::new(super::ticks(self.response), super::ticks(self.tombstone)).unwrap_or_default();
        Life::new(recovery, windows)
    }
}
