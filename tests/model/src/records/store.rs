//! The store: the core's own functions over one row, and what becomes of them without a rule.

use idempotency::protocol::{self, Decision, SweepStep};
use idempotency::{
    Claim, Claimed, DeadNonces, Holder, Lease, Nonce, Outcome, Record, Resolve, Resolved, Settled, Standing, Stored,
    Timestamp,
};

use super::message::{Answer, Request};
use super::state::Row;
use super::{Dropped, Records};

impl Records {
    /// Carries a message out.
    pub fn apply(&self, row: &mut Row, request: &Request, now: Timestamp) -> Answer {
        let record = &mut row.0;
        if self.lacks(Dropped::InFlightOutlivesWindows) {
            forget_by_window(record, now);
        }
        match request {
            Request::Claim(claim) => Answer::Claimed(self.claim(record, claim, now)),
            Request::Renew(holder, lease) => Answer::Settled(self.renew(record.as_mut(), holder, *lease, now)),
            Request::Complete(holder, outcome) => Answer::Settled(self.complete(record, holder, outcome, now)),
            Request::Release(holder, dead_for) => {
                let settled = protocol::release(record.as_mut(), holder, *dead_for, now);
                if settled == Settled::Applied && self.lacks(Dropped::TokenKept) {
                    *record = None;
                }
                Answer::Settled(settled)
            }
            Request::MarkInDoubt(holder) => {
                Answer::Settled(protocol::mark_in_doubt(record.as_mut(), holder, None, now))
            }
            Request::Abandon(_, nonce, dead_for) => {
                if self.lacks(Dropped::DeadNonces) {
                    abandon_without_killing(record.as_mut(), *nonce, now);
                } else {
                    *record = Some(protocol::abandon(record.take(), *nonce, *dead_for, now));
                }
                Answer::Abandoned
            }
            Request::Resolve(resolve) => Answer::Resolved(self.resolve(record.as_mut(), resolve, now)),
        }
    }

    fn claim(&self, row: &mut Option<Record>, claim: &Claim, now: Timestamp) -> Claimed {
        if self.lacks(Dropped::OwnClaimChangesNothing)
            && let Some(record) = row.as_mut().filter(|record| record.nonce == claim.nonce)
        {
            record.stored = Stored::InFlight;
            record.lease_until = now.after(claim.lease.length());
        }
        if self.lacks(Dropped::LifeKept)
            && let Some(record) = row.as_mut().filter(|record| record.life.is_some())
        {
            record.life = Some(claim.life.clone());
        }
        let decided = match protocol::decide(row.as_ref(), claim, now, Timestamp::MIN) {
            // A claim that is answered is no grant, and a waiter that is woken takes what it finds.
            Decision::Answer(Claimed::Mismatch) if self.lacks(Dropped::FingerprintComparedAgain) => {
                let same =
                    Claim { fingerprint: row.as_ref().map_or(claim.fingerprint, |r| r.fingerprint), ..claim.clone() };
                protocol::decide(row.as_ref(), &same, now, Timestamp::MIN)
            }
            decided => decided,
        };
        match decided {
            Decision::Answer(answer) => answer,
            // No claim here has a setting that renews.
            Decision::Prolong(tombstone) => Claimed::Executed(tombstone),
            Decision::Grant => {
                let (mut record, grant) = protocol::grant(row.take(), claim, now);
                if self.lacks(Dropped::DeadNoncesSurvive) {
                    record.dead = DeadNonces::default();
                }
                *row = Some(record);
                Claimed::Granted(grant)
            }
        }
    }

    fn renew(&self, mut record: Option<&mut Record>, holder: &Holder, lease: Lease, now: Timestamp) -> Settled {
        let late = |record: &&mut Record| {
            record.is_held_by(holder.token, holder.nonce)
                && record.stored == Stored::InFlight
                && now >= record.lease_until
        };
        if self.lacks(Dropped::RenewedInTime)
            && let Some(record) = record.take_if(|record| late(record))
        {
            record.lease_until = now.after(lease.length());
            return Settled::Applied;
        }
        protocol::renew(record, holder, lease, now)
    }

    fn complete(&self, row: &mut Option<Record>, holder: &Holder, outcome: &Outcome, now: Timestamp) -> Settled {
        let absent = row.as_ref().is_none_or(|record| matches!(record.standing(now), Standing::Absent { .. }));
        if self.lacks(Dropped::CompleteNeverInserts) && absent {
            // As an UPSERT would.
            let mut stub = protocol::abandon(row.take(), Nonce::from_bytes([0; 16]), std::time::Duration::ZERO, now);
            stub.nonce = holder.nonce;
            stub.token = Some(holder.token);
            stub.life = Some(self.setting.life(self.setting.clients[0].recovery));
            stub.stored = Stored::Completed(outcome.clone());
            stub.since = now;
            *row = Some(stub);
            return Settled::Applied;
        }
        protocol::complete(row.as_mut(), holder, outcome, now)
    }

    fn resolve(&self, record: Option<&mut Record>, resolve: &Resolve, now: Timestamp) -> Resolved {
        let Some(record) = record else { return protocol::resolve(None, resolve, now) };
        let (nonce, dead) = (record.nonce, record.dead.clone());
        let mut resolve = resolve.clone();
        if self.lacks(Dropped::ResolveCompares)
            && let Some(token) = record.token
        {
            resolve.token_seen = token;
        }
        let resolved = protocol::resolve(Some(record), &resolve, now);
        if resolved == Resolved::Applied {
            // Random in the core, and known to nobody: any one that no client makes is the same.
            record.nonce = NOBODY;
            if self.lacks(Dropped::ResolveReplacesNonce) {
                (record.nonce, record.dead) = (nonce, dead);
            }
        }
        resolved
    }

    /// What the first half of a sweep sees: whether there is a row to be deleted.
    pub(super) fn is_over(&self, row: &Row, now: Timestamp) -> bool {
        row.0.as_ref().is_some_and(|record| self.step_of_sweep(record, now) == Some(Over::Row))
    }

    /// The second half, which looks again.
    pub(super) fn sweep(&self, row: &mut Row, now: Timestamp) {
        let Some(record) = &mut row.0 else { return };
        match self.step_of_sweep(record, now) {
            _ if self.lacks(Dropped::PurgeLooksAgain) => row.0 = None,
            Some(Over::Row) => row.0 = None,
            Some(Over::Payload) => {
                if let Stored::Completed(outcome) = &mut record.stored {
                    *outcome = outcome.clone().without_payload();
                }
            }
            None => {}
        }
    }

    fn step_of_sweep(&self, record: &Record, now: Timestamp) -> Option<Over> {
        let hold = if self.lacks(Dropped::TokenHeld) { std::time::Duration::ZERO } else { self.setting.hold() };
        match protocol::sweep_holding(record, now, hold) {
            SweepStep::Keep => None,
            SweepStep::DropPayload => Some(Over::Payload),
            SweepStep::Purge { .. } => Some(Over::Row),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Over {
    Payload,
    Row,
}

/// What a store does that ends an attempt in flight by the tombstone window, counted from its claim.
fn forget_by_window(row: &mut Option<Record>, now: Timestamp) {
    let over = |record: &Record| {
        let window = record.life.as_ref().map(|life| life.windows().tombstone());
        record.stored == Stored::InFlight && window.is_some_and(|window| now >= record.since.after(window))
    };
    if row.as_ref().is_some_and(over) {
        *row = None;
    }
}

fn abandon_without_killing(record: Option<&mut Record>, nonce: Nonce, now: Timestamp) {
    let Some(record) = record.filter(|record| record.nonce == nonce) else { return };
    if matches!(record.standing(now), Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. }) {
        record.stored = Stored::Released;
        record.since = now;
    }
}

const NOBODY: Nonce = Nonce::from_bytes([0xff; 16]);
