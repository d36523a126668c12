//! Random walks of everything that can arrive at a store of leases and at a fence, in any order, late and twice: to be replayed against real
//! ones. What each answers is told by the core's [`lease_protocol`](idempotency::lease_protocol) over one row, as in the
//! [model](crate::leases), and by the fence of that model.

use std::time::Duration;

use idempotency::{
    Acquired, Ask, DeadNonces, FencingToken, Lease, LeaseEntry, LeaseHolder, LeaseRecord, Nonce, Resource, Settled,
    Timestamp, lease_protocol as protocol,
};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::ticks::{TICK, ticks};

/// What arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the operations")]
pub enum Op {
    Acquire(Ask),
    Renew(LeaseHolder, Lease),
    Release(LeaseHolder, Duration),
    Abandon(Nonce, Duration),
    /// A fence is opened with the ticket of a holder.
    Open(LeaseHolder),
    Sweep,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the answers")]
pub enum Answer {
    Acquired(Acquired),
    /// The token would be too far ahead of the clock.
    TooFarAhead,
    Settled(Settled),
    Abandoned,
    Swept,
    Opened,
    /// By the holder of this token.
    Superseded(FencingToken),
}

/// One step of a walk.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The store's clock.
    pub at: Timestamp,
    /// What arrives.
    pub op: Op,
    /// The answer.
    pub answer: Answer,
    /// What an operator sees afterwards.
    pub entry: Option<LeaseEntry>,
}

/// A rule of the store that the walks must miss when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// An own asking is answered as it was.
    OwnAskingChangesNothing,
    /// A late copy of an asking brings no lost lease back.
    LostIsLost,
    /// A nonce that was abandoned asks for nothing any more.
    AbandonedIsDead,
    /// A nonce that was released asks for nothing any more.
    ReleasedIsDead,
    /// What was over is not renewed.
    RenewedInTime,
    /// Only its holder gives a lease back.
    HolderCompared,
    /// The token outlives the holder.
    TokenKept,
    /// The fence knows the newest token.
    FenceKeepsNewest,
}

impl Dropped {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::OwnAskingChangesNothing,
        Self::LostIsLost,
        Self::AbandonedIsDead,
        Self::ReleasedIsDead,
        Self::RenewedInTime,
        Self::HolderCompared,
        Self::TokenKept,
        Self::FenceKeepsNewest,
    ];
}

/// How to walk.
#[derive(Clone, Debug)]
pub struct LeaseWalk {
    /// What the leases are of.
    pub resource: Resource,
    /// When it begins.
    pub origin: Timestamp,
    /// How long the store holds a row for its token.
    pub hold: Duration,
    /// How often the store's clock may step back: not after a sweep.
    pub back: u8,
    /// There is a fence to be opened.
    pub fence: bool,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

struct State {
    now: Timestamp,
    back: u8,
    jumps: u8,
    row: Option<LeaseRecord>,
    fence: Option<(FencingToken, Nonce)>,
    asked: Vec<Ask>,
    granted: Vec<LeaseHolder>,
    sent: Vec<Op>,
}

impl LeaseWalk {
    /// A walk of so many steps.
    pub fn walk(&self, steps: usize, random: &mut impl rand::Rng) -> Vec<Arrival> {
        let mut state = State {
            now: self.origin,
            back: self.back,
            jumps: 2,
            row: None,
            fence: None,
            asked: Vec::new(),
            granted: Vec::new(),
            sent: Vec::new(),
        };
        let mut arrivals = Vec::new();
        for _ in 0..steps {
            state.time_passes(random);
            let again = state.sent.choose(random).filter(|_| random.random_ratio(1, 5)).cloned();
            let op = again.unwrap_or_else(|| self.something(&state, random));
            let answer = self.apply(&mut state, &op);
            if let (Op::Acquire(ask), Answer::Acquired(Acquired::Granted(grant))) = (&op, &answer) {
                let holder = LeaseHolder { resource: ask.resource.clone(), token: grant.token, nonce: ask.nonce };
                state.granted.push(holder);
            }
            if let Op::Acquire(ask) = &op {
                state.asked.push(ask.clone());
            }
            let entry = state.row.as_ref().and_then(|row| row.entry_holding(state.now, self.hold));
            state.sent.push(op.clone());
            arrivals.push(Arrival { at: state.now, op, answer, entry });
        }
        arrivals
    }

    fn something(&self, state: &State, random: &mut impl rand::Rng) -> Op {
        let held = state.granted.choose(random).cloned();
        let dead = if random.random_ratio(1, 4) { Duration::ZERO } else { ticks(random.random_range(1..4)) };
        match (random.random_range(0..12), held) {
            (0, Some(holder)) => Op::Renew(holder, self.lease(random)),
            (1 | 2, Some(holder)) => Op::Release(holder, dead),
            (3 | 4, Some(holder)) if self.fence => Op::Open(holder),
            (5, _) => {
                let nonce = state.asked.choose(random).map_or_else(|| nonce(random), |ask| ask.nonce);
                Op::Abandon(nonce, dead)
            }
            (6, _) if random.random_ratio(1, 3) => Op::Sweep,
            (7, Some(holder)) => {
                // Its own token is to be raised above what a fence has seen, of a clock that may be wrong.
                let ahead = if random.random_ratio(1, 4) { ticks(70) } else { ticks(random.random_range(0..3)) };
                let above = holder.token.get() + u64::try_from(ahead.as_micros()).unwrap_or(0);
                let lease = self.lease(random);
                let above = FencingToken::new(above).ok();
                Op::Acquire(Ask { resource: holder.resource, nonce: holder.nonce, lease, above })
            }
            _ => {
                let ask = Ask {
                    resource: self.resource.clone(),
                    nonce: nonce(random),
                    lease: self.lease(random),
                    above: None,
                };
                Op::Acquire(ask)
            }
        }
    }

    #[expect(clippy::unused_self, reason = "beside the others")]
    fn lease(&self, random: &mut impl rand::Rng) -> Lease {
        Lease::new(ticks(random.random_range(1..4))).unwrap_or_default()
    }

    fn apply(&self, state: &mut State, op: &Op) -> Answer {
        let now = state.now;
        let dropped = |rule| self.dropped == Some(rule);
        let row = &mut state.row;
        match op {
            Op::Acquire(ask) => {
                if let Some(record) = row.as_mut().filter(|record| record.holder == Some(ask.nonce)) {
                    let lives = record.lease_left(now).is_some();
                    let forgotten = Dropped::OwnAskingChangesNothing;
                    if dropped(if lives { forgotten } else { Dropped::LostIsLost }) {
                        record.holder = None;
                    }
                }
                let Ok((acquired, write)) = protocol::acquire(row.as_ref(), ask, now) else {
                    return Answer::TooFarAhead;
                };
                *row = write.or_else(|| row.take());
                Answer::Acquired(acquired)
            }
            Op::Renew(holder, lease) => {
                let mut own = row.as_mut().filter(|record| record.is_held_by(holder.token, holder.nonce));
                if let Some(record) = own.as_mut().filter(|_| dropped(Dropped::RenewedInTime)) {
                    record.lease_until = record.lease_until.max(now.after(TICK));
                }
                Answer::Settled(protocol::renew(row.as_mut(), holder, *lease, now))
            }
            Op::Release(holder, dead_for) => {
                let of_another = row.as_ref().and_then(|record| {
                    Some(LeaseHolder { token: record.token?, nonce: record.holder?, ..holder.clone() })
                });
                let holder = of_another.filter(|_| dropped(Dropped::HolderCompared)).unwrap_or_else(|| holder.clone());
                let settled = protocol::release(row.as_mut(), &holder, *dead_for, now);
                if let Some(record) = row {
                    if dropped(Dropped::ReleasedIsDead) {
                        record.dead = DeadNonces::default();
                    }
                    if dropped(Dropped::TokenKept) && settled == Settled::Applied {
                        record.token = None;
                    }
                }
                Answer::Settled(settled)
            }
            Op::Abandon(nonce, dead_for) => {
                let mut record = protocol::abandon(row.take(), *nonce, *dead_for, now);
                if dropped(Dropped::AbandonedIsDead) {
                    record.dead = DeadNonces::default();
                }
                *row = Some(record);
                Answer::Abandoned
            }
            Op::Open(holder) => {
                let own = (holder.token, holder.nonce);
                match state.fence {
                    Some(fence) if own.0 < fence.0 || own.0 == fence.0 && own.1 != fence.1 => {
                        if dropped(Dropped::FenceKeepsNewest) {
                            state.fence = Some(own);
                        }
                        Answer::Superseded(fence.0)
                    }
                    _ => {
                        state.fence = Some(own);
                        Answer::Opened
                    }
                }
            }
            Op::Sweep => {
                if row.as_ref().is_some_and(|record| protocol::is_over_holding(record, now, self.hold)) {
                    *row = None;
                }
                // A store's clock shows no less than when something was forgotten.
                state.back = 0;
                Answer::Swept
            }
        }
    }
}

impl State {
    fn time_passes(&mut self, random: &mut impl rand::Rng) {
        if self.jumps > 0 && random.random_ratio(1, 20) {
            self.jumps -= 1;
            // Beyond everything that a row is kept for.
            self.now = self.now.after(ticks(200));
        } else if self.back > 0 && random.random_ratio(1, 10) {
            self.back -= 1;
            self.now = self.now.before(TICK);
        } else if random.random_ratio(1, 3) {
            self.now = self.now.after(TICK);
        }
    }
}

/// One of a few, so that they come again.
fn nonce(random: &mut impl rand::Rng) -> Nonce {
    Nonce::from_bytes([random.random_range(1..7); 16])
}
