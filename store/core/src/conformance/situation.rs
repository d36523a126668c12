//! Every state a record can be in, and by which way it got there.

use super::Harness;
use super::support::{Attempt, LEASE, RESPONSE, Subject, TOMBSTONE, life, other_outcome, outcome};
use crate::{FencingToken, Grant, Holder, Nonce, Recovery, Settled, State};

/// A state, by the way it was reached. All but `Rerun…` are under [`Recovery::Hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    /// Nothing was ever claimed.
    Absent,
    InFlight,
    RerunInFlight,
    /// In flight, and the lease is over.
    RerunLeaseEnded,
    /// In doubt because the lease is over.
    InDoubtByLease,
    /// In doubt because the holder said so.
    InDoubtMarked,
    /// The same, with the answer it sent.
    InDoubtAnswered,
    /// In doubt although a lost attempt would be run again: the holder said so.
    RerunInDoubt,
    Completed,
    /// Completed, the response window is over.
    TombstoneByTime,
    /// Completed without a payload.
    TombstoneAtOnce,
    Released,
    /// In flight, then abandoned.
    Abandoned,
    /// Abandoned before anything was claimed.
    Stub,
    /// Completed, the tombstone window is over.
    Expired,
    /// In doubt, the tombstone window after its lease is over.
    DoubtExpired,
}

use Situation::{
    Abandoned, Absent, Completed, DoubtExpired, Expired, InDoubtAnswered, InDoubtByLease, InDoubtMarked, InFlight,
    Released, RerunInDoubt, RerunInFlight, RerunLeaseEnded, Stub, TombstoneAtOnce, TombstoneByTime,
};

impl Situation {
    pub(super) const ALL: [Self; 16] = [
        Absent,
        InFlight,
        RerunInFlight,
        RerunLeaseEnded,
        InDoubtByLease,
        InDoubtMarked,
        InDoubtAnswered,
        RerunInDoubt,
        Completed,
        TombstoneByTime,
        TombstoneAtOnce,
        Released,
        Abandoned,
        Stub,
        Expired,
        DoubtExpired,
    ];

    /// The state that people see in it.
    pub(super) const fn state(self) -> Option<State> {
        match self {
            Absent | Expired | DoubtExpired => None,
            InFlight | RerunInFlight | RerunLeaseEnded => Some(State::InFlight),
            InDoubtByLease | InDoubtMarked | InDoubtAnswered | RerunInDoubt => Some(State::InDoubt),
            Completed => Some(State::Completed),
            TombstoneByTime | TombstoneAtOnce => Some(State::Tombstone),
            Released | Abandoned | Stub => Some(State::Released),
        }
    }

    /// Whether an attempt has begun in this life and has not ended in a known way.
    pub(super) const fn is_unfinished(self) -> bool {
        matches!(self.state(), Some(State::InFlight | State::InDoubt))
    }

    pub(super) const fn is_finished(self) -> bool {
        matches!(self.state(), Some(State::Completed | State::Tombstone))
    }

    /// Whether the record still says which request its key stands for.
    pub(super) const fn has_fingerprint(self) -> bool {
        self.is_unfinished() || self.is_finished()
    }

    /// Whether the nonce that was used is dead.
    pub(super) const fn nonce_is_dead(self) -> bool {
        matches!(self, Released | Abandoned | Stub)
    }

    /// How many attempts the record counts in this life.
    pub(super) const fn attempts(self) -> u32 {
        match self {
            Absent | Stub | Expired | DoubtExpired => 0,
            _ => 1,
        }
    }

    const fn recovery(self) -> Recovery {
        match self {
            RerunInFlight | RerunLeaseEnded | RerunInDoubt => Recovery::Rerun,
            _ => Recovery::Hold,
        }
    }

    /// Brings a new key into this situation. Moves the clock where time has to pass.
    pub(super) async fn arrange<H: Harness>(self, harness: &H) -> Scene<'_, H> {
        let subject = Subject::with(harness, life(self.recovery()));
        if matches!(self, Absent | Stub) {
            let nonce = Nonce::random();
            if self == Stub {
                subject.abandon(nonce).await;
            }
            let token = FencingToken::new(1).expect("1 is a token");
            return Scene { holder: Holder { id: subject.claim.id, token, nonce }, subject };
        }
        let attempt = subject.grant().await;
        let settled = match self {
            InDoubtMarked | RerunInDoubt => attempt.mark(None).await,
            InDoubtAnswered => attempt.mark(Some(&other_outcome())).await,
            Completed | TombstoneByTime | Expired => attempt.complete().await,
            TombstoneAtOnce => attempt.complete_with(&outcome().without_payload()).await,
            Released => attempt.release().await,
            _ => Settled::Applied,
        };
        assert_eq!(settled, Settled::Applied, "arranging {self:?}");
        match self {
            RerunLeaseEnded | InDoubtByLease => harness.advance(LEASE).await,
            TombstoneByTime => harness.advance(RESPONSE).await,
            Expired => harness.advance(TOMBSTONE).await,
            DoubtExpired => harness.advance(LEASE + TOMBSTONE).await,
            Abandoned => subject.abandon(attempt.holder.nonce).await,
            _ => {}
        }
        Scene { holder: attempt.holder, subject }
    }
}

/// A key in a [`Situation`], and who brought it there. In a situation without an attempt the holder is made up, with the
/// nonce that was abandoned if one was.
pub(super) struct Scene<'h, H: Harness> {
    pub(super) subject: Subject<'h, H>,
    pub(super) holder: Holder,
}

impl<'h, H: Harness> Scene<'h, H> {
    /// The holder, to send its messages again.
    pub(super) fn attempt(&self) -> Attempt<'h, H> {
        let grant = Grant {
            token: self.holder.token,
            attempt: 1,
            lease_left: LEASE,
            recovery: self.subject.claim.life.recovery(),
            possible_escape: false,
        };
        Attempt { harness: self.subject.harness, holder: self.holder, grant }
    }
}
