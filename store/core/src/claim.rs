//! The store's messages: what is asked and what is answered.

use std::time::Duration;

use crate::{FencingToken, Fingerprint, Lease, Life, Nonce, Outcome, RecordId, Recovery, State, Timestamp, Tombstone};

/// The one question that decides who runs.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which record.
    pub id: RecordId,
    /// What a duplicate must repeat.
    pub fingerprint: Fingerprint,
    /// The claimer's nonce, made before it asks and the same while it asks again.
    pub nonce: Nonce,
    /// How long the claim is held.
    pub lease: Lease,
    /// Settings for the record's whole life, if this claim begins it.
    pub life: Life,
    /// When a time-ordered key says it was made.
    pub key_time: Option<Timestamp>,
    /// The most bytes its outcome may take. A bounded store reserves them now, so that a completion is
    /// never refused.
    pub room: u32,
}

/// The answer to a [`Claim`]. Exactly one claimer at a time gets [`Claimed::Granted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Run.
    Granted(Grant),
    /// It ran; this is the outcome.
    Replay {
        /// What was recorded.
        outcome: Outcome,
        /// When it completed, on the store's clock.
        completed_at: Timestamp,
        /// How long ago that was when the store answered.
        age: Duration,
        /// How long the outcome is still kept.
        time_left: Duration,
    },
    /// It ran; its outcome is no longer kept, or never was.
    Executed(Tombstone),
    /// It runs.
    InFlight {
        /// Until its lease ends, if nobody renews it.
        lease_left: Duration,
    },
    /// An attempt ended and nobody knows whether its effect happened.
    InDoubt(Doubt),
    /// The key stands for another request.
    Mismatch,
    /// The record's fingerprint has a version this release does not know.
    Unreadable,
    /// This nonce was abandoned; ask again with a new one.
    Refused,
    /// The key's time is past the maximum age, and no record answers for it.
    TooOld,
    /// The key is dated further ahead than the drift allows.
    FromTheFuture,
    /// No room for another record. Nothing was forgotten to make some.
    Full,
}

impl Claimed {
    /// How many bytes are on record that this answer tells of.
    pub(crate) fn recorded_size(&self) -> usize {
        match self {
            Self::Replay { outcome, .. } | Self::InDoubt(Doubt { response: Some(outcome), .. }) => outcome.size(),
            _ => 0,
        }
    }
}

/// Permission to run once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Larger than every token granted for this record before.
    pub token: FencingToken,
    /// Which run this is, from 1, since the record's life began.
    pub attempt: u32,
    /// Until the lease ends. Zero on a repeated claim whose lease is over: such a claimer does not run.
    pub lease_left: Duration,
    /// What becomes of this attempt if its outcome is not known: the record's own setting, kept from the first claim of its life.
    pub recovery: Recovery,
    /// A record in doubt was forgotten to make this grant: the effect may happen twice.
    pub possible_escape: bool,
}

/// What is known of a record in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Since when, on the store's clock.
    pub since: Timestamp,
    /// How long ago that was when the store answered.
    pub age: Duration,
    /// The attempt that ended.
    pub attempt: u32,
    /// Its token.
    pub token: FencingToken,
    /// The answer its client got, if one was sent and kept.
    pub response: Option<Outcome>,
    /// The record carries the claimer's own nonce: its claim was granted and the reply was lost.
    pub own: bool,
}

/// Who asks to renew, complete, release or mark in doubt: all three must be the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which record.
    pub id: RecordId,
    /// The token of the grant.
    pub token: FencingToken,
    /// The nonce of the claim.
    pub nonce: Nonce,
}

/// The answer to complete, renew, release, mark in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Done now.
    Applied,
    /// Done before, by this same holder.
    AlreadyApplied,
    /// Refused: somebody newer was there first, or the lease is over, or the record is gone.
    Superseded,
}

/// What somebody found out about a record in doubt.
#[derive(Clone, Debug)]
pub struct Resolve {
    /// Which record.
    pub id: RecordId,
    /// The token the resolver saw. Another one on the record means that the record has moved on.
    pub token_seen: FencingToken,
    /// What is now known.
    pub verdict: ResolveVerdict,
    /// Who says so, for the record.
    pub who: String,
    /// Why, for the record.
    pub why: String,
}

/// What is now known about a record in doubt.
#[derive(Clone, Debug)]
pub enum ResolveVerdict {
    /// The effect happened; duplicates get this outcome.
    Happened(Outcome),
    /// The effect did not happen and **the old attempt can no longer act**: its process is known dead, or
    /// the fence was opened with a larger token *before* looking. The key is free again.
    DidNotHappen {
        /// The token the fence was opened with; the next grant is above it.
        fence_token: Option<FencingToken>,
    },
}

/// The answer to a [`Resolve`].
#[must_use = "a resolution that was not applied settles nothing"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Done.
    Applied,
    /// The record's token is another one; this resolver looked at an older attempt.
    Superseded,
    /// The record is not in doubt.
    NotInDoubt(State),
    /// There is no such record.
    Missing,
}

/// What an operator sees of a record. No key, no body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which record.
    pub id: RecordId,
    /// Its state, judged when the store answered.
    pub state: State,
    /// The last token granted for it, if any was.
    pub token: Option<FencingToken>,
    /// The last attempt's number; 0 when none was granted.
    pub attempt: u32,
    /// How long it has been in this state.
    pub age: Duration,
    /// The status of the recorded answer, if there is one.
    pub status: Option<u16>,
    /// Who resolved it and why, if somebody did.
    pub resolution: Option<(String, String)>,
}

/// Which records to list.
#[derive(Clone, Debug)]
pub struct List {
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those after this one, in the order of ids: a page's `next`.
    pub after: Option<RecordId>,
    /// At most so many.
    pub limit: usize,
}

impl Default for List {
    /// Every state, from the beginning, 100 at most.
    fn default() -> Self {
        Self { state: None, after: None, limit: 100 }
    }
}

/// Some records, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub entries: Vec<Entry>,
    /// Where the next page starts, if there may be one.
    pub next: Option<RecordId>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Records deleted.
    pub purged: usize,
    /// Outcomes whose payload was dropped because the response window is over.
    pub tombstoned: usize,
    /// Of the purged, those that were in doubt: possible escapes.
    pub escapes: usize,
    /// The batch was full; there may be more to do at once.
    pub more: bool,
}

impl Swept {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            purged: self.purged + other.purged,
            tombstoned: self.tombstoned + other.tombstoned,
            escapes: self.escapes + other.escapes,
            more: other.more,
        }
    }
}
