//! Model 3: an outcome in its effect's own transaction, and an effect behind a fence with and without a marker.
//!
//! The record is one row of a database, with row locks: a claim waits while a transaction has the row. The row's new content is made by
//! the core's [`protocol`], and an unanswered commit is looked up by its [`fate`](protocol::fate). Connections break before and
//! after a commit has reached the server; processes stand still and die; under Rerun attempts are taken over.

use std::time::Duration;

use bytes::Bytes;
use idempotency::protocol::{self, Decision};
use idempotency::transaction::Fate;
use idempotency::{
    Claim, Claimed, Fingerprint, Holder, Lease, Life, Nonce, Outcome, Recovery, Settled, Timestamp, Windows,
};
use stateright::{Model, Property};

use crate::records::state::Row;
use crate::ticks::{ORIGIN, TICK, ticks};

/// The model, in one of its settings, with or without one of its rules.
#[derive(Clone, Debug)]
pub struct Transactions {
    /// Where the effect is.
    pub setting: Setting,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

/// Where the effect is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// In the transaction that records the outcome.
    WithOutcome,
    /// In a transaction of its own, fenced, with a marker for the record (`fence::once`).
    Fenced,
}

/// A rule that the model can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The outcome is an update that locks the row, not a look before.
    UpdateNotLook,
    /// Only what changed its row is committed.
    CommitOnlyIfChanged,
    /// What was recorded already is no success of this transaction.
    AlreadyIsNoSuccess,
    /// The update names the states that it is for.
    StateCompared,
    /// The fate of a commit is read by a read that waits for its end.
    FateWaits,
    /// A repeated effect finds its marker.
    Marked,
}

impl Dropped {
    /// Every rule, and the setting in which it is missed.
    pub const ALL: [(Self, Setting); 6] = [
        (Self::UpdateNotLook, Setting::WithOutcome),
        (Self::CommitOnlyIfChanged, Setting::WithOutcome),
        (Self::AlreadyIsNoSuccess, Setting::WithOutcome),
        (Self::StateCompared, Setting::WithOutcome),
        (Self::FateWaits, Setting::WithOutcome),
        (Self::Marked, Setting::Fenced),
    ];
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Timestamp,
    row: Row,
    /// The row as the transaction that has it locked will leave it.
    pending: Option<(u8, Row)>,
    effects: u8,
    marker: bool,
    fence: u64,
    clients: [Client; CLIENTS],
    ticks: u8,
    breaks: u8,
    crashes: u8,
    /// Somebody was told that it failed for certain, or that it succeeded, under this nonce.
    told_failed: u32,
    told_done: u32,
    committed: u32,
    superseded: bool,
    taken_over: bool,
    /// A commit whose answer was lost was found out to have been one; not to have been one.
    found: bool,
    found_not: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    requests: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Running(Own),
    /// Its transaction has begun and holds the effect.
    Open(Own),
    /// The outcome is written.
    Recorded(Own),
    /// COMMIT is on its way.
    Committing(Own),
    /// The connection broke; COMMIT may still arrive.
    Unanswered(Own),
    /// It broke, and the server has ended the transaction.
    Ended(Own),
    /// Committed; a handler may begin another transaction.
    Committed(Own),
    Crashed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Own {
    token: idempotency::FencingToken,
    name: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens; a number is a client's")]
pub enum Action {
    Tick,
    Claim(u8),
    Begin(u8),
    RecordIn(u8),
    SendCommit(u8),
    CommitArrives(u8),
    ConnectionBreaks(u8),
    ServerRollsBack(u8),
    AskFate(u8),
    BeginAnother(u8),
    FencedWrite(u8),
    Complete(u8),
    Release(u8),
    Crash(u8),
}

const CLIENTS: usize = 3;

impl Transactions {
    fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }

    fn claim(&self, state: &mut State, number: u8) {
        let client = &mut state.clients[usize::from(number)];
        client.requests -= 1;
        let name = number * 4 + client.requests + 1;
        let claim = Claim {
            id: crate::records::RECORD,
            fingerprint: Fingerprint::of(["x"]),
            nonce: Nonce::from_bytes([name; 16]),
            lease: Lease::new(TICK).unwrap_or_default(),
            life: Life::new(Recovery::Rerun, Windows::new(ticks(8), ticks(8)).unwrap_or_default()),
            key_time: None,
            room: 64,
        };
        match protocol::decide(state.row.0.as_ref(), &claim, state.now, Timestamp::MIN) {
            Decision::Grant => {
                let (record, grant) = protocol::grant(state.row.0.take(), &claim, state.now);
                state.taken_over |= record.attempt > 1;
                state.row.0 = Some(record);
                client.phase = Phase::Running(Own { token: grant.token, name });
            }
            Decision::Answer(Claimed::Replay { .. }) => state.told_done |= 1 << name,
            Decision::Answer(_) | Decision::Prolong(_) => {}
        }
    }

    /// Whether the outcome was written, and so may be committed.
    fn record_in(&self, state: &mut State, number: u8, own: Own) -> bool {
        let holder = own.holder();
        if self.lacks(Dropped::UpdateNotLook) {
            // A plain read: nothing is locked, and what is written later is written whatever has become of the row.
            return protocol::fate(state.row.0.as_ref(), &holder, state.now) == Fate::NotCommitted;
        }
        let mut row = state.row.clone();
        let mut settled = protocol::complete(row.0.as_mut(), &holder, &outcome(), state.now);
        let own_row = |record: &idempotency::Record| record.is_held_by(holder.token, holder.nonce);
        if self.lacks(Dropped::StateCompared) && row.0.as_ref().is_some_and(own_row) {
            settled = Settled::Applied;
        }
        let changed = match settled {
            Settled::Applied => true,
            Settled::AlreadyApplied => self.lacks(Dropped::AlreadyIsNoSuccess),
            Settled::Superseded => self.lacks(Dropped::CommitOnlyIfChanged),
        };
        if changed {
            state.pending = Some((number, row));
        }
        changed
    }

    fn commit(&self, state: &mut State, number: u8, own: Own) {
        match state.pending.take_if(|(whose, _)| *whose == number) {
            Some((_, row)) => state.row = row,
            None => {
                let _ = protocol::complete(state.row.0.as_mut(), &own.holder(), &outcome(), state.now);
            }
        }
        state.effects += 1;
        state.committed |= 1 << own.name;
    }

    fn steps_of(&self, state: &State, number: u8, actions: &mut Vec<Action>) {
        let client = &state.clients[usize::from(number)];
        let free = state.pending.is_none();
        match client.phase {
            Phase::Idle if client.requests > 0 && free => actions.push(Action::Claim(number)),
            Phase::Idle | Phase::Crashed => {}
            Phase::Running(_) if self.setting == Setting::Fenced => actions.push(Action::FencedWrite(number)),
            Phase::Running(_) => {
                actions.push(Action::Begin(number));
                if free {
                    actions.push(Action::Release(number));
                }
            }
            Phase::Open(_) if free => actions.push(Action::RecordIn(number)),
            Phase::Open(_) => {}
            Phase::Recorded(_) if self.setting == Setting::Fenced => actions.push(Action::Complete(number)),
            Phase::Recorded(_) => actions.push(Action::SendCommit(number)),
            Phase::Committing(_) => {
                actions.push(Action::CommitArrives(number));
                if state.breaks > 0 {
                    actions.push(Action::ConnectionBreaks(number));
                }
            }
            Phase::Unanswered(_) => {
                actions.extend([Action::CommitArrives(number), Action::ServerRollsBack(number)]);
                if self.lacks(Dropped::FateWaits) {
                    actions.push(Action::AskFate(number));
                }
            }
            Phase::Ended(_) if free => actions.push(Action::AskFate(number)),
            Phase::Ended(_) => {}
            Phase::Committed(_) => actions.push(Action::BeginAnother(number)),
        }
        // Who dies with a commit on its way is like one whose connection broke.
        let may_die = matches!(client.phase, Phase::Running(_) | Phase::Open(_) | Phase::Recorded(_));
        if state.crashes > 0 && may_die {
            actions.push(Action::Crash(number));
        }
    }
}

impl Model for Transactions {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: ORIGIN,
            row: Row(None),
            pending: None,
            effects: 0,
            marker: false,
            fence: 0,
            clients: [Client { requests: 1, phase: Phase::Idle }; CLIENTS],
            ticks: 2,
            breaks: 1,
            crashes: 1,
            told_failed: 0,
            told_done: 0,
            committed: 0,
            superseded: false,
            taken_over: false,
            found: false,
            found_not: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..CLIENTS as u8 {
            self.steps_of(state, number, actions);
        }
        if state.ticks > 0 {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let next = |state: &mut State, number: u8, phase| state.clients[usize::from(number)].phase = phase;
        let own = |number: u8| last.clients[usize::from(number)].phase.own();
        match action {
            Action::Tick => {
                state.ticks -= 1;
                state.now = state.now.after(TICK);
            }
            Action::Claim(number) => self.claim(&mut state, number),
            Action::Begin(number) | Action::BeginAnother(number) => next(&mut state, number, Phase::Open(own(number)?)),
            Action::RecordIn(number) => {
                let own = own(number)?;
                let recorded = self.record_in(&mut state, number, own);
                state.superseded |= !recorded;
                next(&mut state, number, if recorded { Phase::Recorded(own) } else { Phase::Idle });
            }
            Action::SendCommit(number) => next(&mut state, number, Phase::Committing(own(number)?)),
            Action::CommitArrives(number) => {
                let own = own(number)?;
                let answered = matches!(last.clients[usize::from(number)].phase, Phase::Committing(_));
                self.commit(&mut state, number, own);
                let again = last.committed & (1 << own.name) != 0;
                if answered {
                    state.told_done |= 1 << own.name;
                }
                let ended = if answered { Phase::Committed(own) } else { Phase::Ended(own) };
                next(&mut state, number, if again { Phase::Idle } else { ended });
            }
            Action::ConnectionBreaks(number) => {
                state.breaks -= 1;
                next(&mut state, number, Phase::Unanswered(own(number)?));
            }
            Action::ServerRollsBack(number) => {
                state.pending.take_if(|(whose, _)| *whose == number);
                next(&mut state, number, Phase::Ended(own(number)?));
            }
            Action::AskFate(number) => {
                let own = own(number)?;
                let waited = matches!(last.clients[usize::from(number)].phase, Phase::Ended(_));
                match protocol::fate(state.row.0.as_ref(), &own.holder(), state.now) {
                    Fate::Committed => {
                        state.found = true;
                        state.told_done |= 1 << own.name;
                    }
                    Fate::NotCommitted => {
                        state.found_not = true;
                        state.told_failed |= 1 << own.name;
                    }
                    Fate::Superseded => state.superseded = true,
                }
                // Its commit may still arrive.
                next(&mut state, number, if waited { Phase::Idle } else { Phase::Committing(own) });
            }
            Action::FencedWrite(number) => {
                let own = own(number)?;
                let admitted = own.token.get() >= state.fence;
                if admitted && (!state.marker || self.lacks(Dropped::Marked)) {
                    state.effects += 1;
                    state.marker = true;
                }
                state.fence = state.fence.max(own.token.get());
                state.superseded |= !admitted;
                next(&mut state, number, if admitted { Phase::Recorded(own) } else { Phase::Idle });
            }
            Action::Complete(number) => {
                let own = own(number)?;
                let settled = protocol::complete(state.row.0.as_mut(), &own.holder(), &outcome(), state.now);
                if settled != Settled::Superseded {
                    state.committed |= 1 << own.name;
                    state.told_done |= 1 << own.name;
                }
                next(&mut state, number, Phase::Idle);
            }
            Action::Release(number) => {
                let _ = protocol::release(state.row.0.as_mut(), &own(number)?.holder(), DEAD, state.now);
                next(&mut state, number, Phase::Idle);
            }
            Action::Crash(number) => {
                state.crashes -= 1;
                state.pending.take_if(|(whose, _)| *whose == number);
                next(&mut state, number, Phase::Crashed);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = |name, holds: fn(&Self, &State) -> bool| Property::always(name, holds);
        let mut properties = vec![
            always("at most one effect", |_, state| state.effects <= 1),
            always("what was said to have failed is not done", |_, state| state.told_failed & state.committed == 0),
            always("what was said to be done is done", |_, state| state.told_done == 0 || state.effects > 0),
            Property::sometimes("superseded", |_, state: &State| state.superseded),
            Property::sometimes("taken over", |_, state: &State| state.taken_over),
            Property::sometimes("done", |_, state: &State| state.effects == 1 && state.told_done != 0),
        ];
        if self.setting == Setting::WithOutcome {
            properties.push(Property::sometimes("a lost answer found out: committed", |_, state: &State| state.found));
            properties.push(Property::sometimes("a lost answer found out: not committed", |_, state: &State| {
                state.found_not
            }));
        }
        properties
    }
}

impl Phase {
    const fn own(self) -> Option<Own> {
        match self {
            Self::Idle | Self::Crashed => None,
            Self::Running(own)
            | Self::Open(own)
            | Self::Recorded(own)
            | Self::Committing(own)
            | Self::Unanswered(own)
            | Self::Ended(own)
            | Self::Committed(own) => Some(own),
        }
    }
}

impl Own {
    const fn holder(self) -> Holder {
        Holder { id: crate::records::RECORD, token: self.token, nonce: Nonce::from_bytes([self.name; 16]) }
    }
}

fn outcome() -> Outcome {
    Outcome::new(201, Bytes::from_static(b"done"))
}

const DEAD: Duration = ticks(8);
