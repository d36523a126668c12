//! Model 5: a time-ordered key, which must never run twice, however late its duplicates are.
//!
//! One record and one floor, judged by the core's [`protocol`]. The row is purged, which raises the floor; the clock steps back; the
//! process restarts, which loses a store in process whole, and only the clock's persisted time is left of a store on disk; the maximum age is raised
//! by a new configuration.

use std::time::Duration;

use bytes::Bytes;
use idempotency::protocol::{self, Decision, SweepStep};
use idempotency::{
    AgeLimit, Claim, Claimed, Fingerprint, Holder, KeyClass, Lease, Life, Nonce, Outcome, Record, Recovery, Settled,
    Timestamp,
};
use stateright::{Model, Property};

use crate::records::RECORD;
use crate::records::state::Row;
use crate::ticks::{ORIGIN, TICK, ticks};

/// The model, in one of its settings, with or without one of its rules.
#[derive(Clone, Debug)]
pub struct Ages {
    /// What a restart leaves.
    pub setting: Setting,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

/// What a restart leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Rows, floors and the largest time seen: a database.
    OnDisk,
    /// Nothing: a process without a ceiling file. Its clock does not step back over a restart.
    InProcess,
    /// The ceiling: no key above it was admitted.
    Ceiling,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OnDisk, Self::InProcess, Self::Ceiling];
}

/// A rule that the model can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The age is judged inside the claim, not by the node before it.
    JudgedInside,
    /// A purge raises the floor to the purged key's time.
    FloorRaised,
    /// After a restart that lost everything the floor is above every key that may have run: the start and the drift, or the ceiling.
    FloorAboveStart,
    /// A record stays until its key is too old.
    KeptUntilTooOld,
}

impl Dropped {
    /// Every rule, and the setting in which it is missed.
    pub const ALL: [(Self, Setting); 5] = [
        (Self::JudgedInside, Setting::OnDisk),
        (Self::FloorRaised, Setting::OnDisk),
        (Self::FloorAboveStart, Setting::InProcess),
        (Self::FloorAboveStart, Setting::Ceiling),
        (Self::KeptUntilTooOld, Setting::OnDisk),
    ];
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Timestamp,
    /// The largest time seen, as far as the store keeps it.
    largest: Timestamp,
    row: Row,
    floor: Timestamp,
    /// In a file, and above every key that was granted.
    ceiling: Timestamp,
    clients: [Client; CLIENTS],
    /// The maximum age in ticks, as nodes are configured now.
    max_age: u8,
    effects: u8,
    ticks: u8,
    back: u8,
    restarts: u8,
    raises: u8,
    refused: bool,
    purged: bool,
    restarted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    requests: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    /// Its node has found the key young enough, and asks.
    Asking(u8),
    Running(idempotency::FencingToken, u8),
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens; a number is a client's")]
pub enum Action {
    Tick,
    StepBack,
    Restart,
    RaiseMaximumAge,
    Begin(u8),
    Claim(u8),
    Complete(u8),
    Release(u8),
    Sweep,
}

const CLIENTS: usize = 2;
/// The key is dated a tick ahead of the clock at the beginning, which the drift allows.
const DATED: Duration = TICK;
const DRIFT: Duration = TICK;

impl Ages {
    fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }

    /// Stores in process and on disk judge by the larger of the clock and the largest time they have seen.
    fn judged_at(state: &State) -> Timestamp {
        state.now.max(state.largest)
    }

    fn claim_of(&self, name: u8, max_age: u8) -> Claim {
        let limit = AgeLimit { max_age: ticks(max_age), drift: DRIFT, class: KeyClass::new("uuid7") };
        let window = ticks(1);
        let age = if self.lacks(Dropped::KeptUntilTooOld) { None } else { Some(limit) };
        Claim {
            id: RECORD,
            fingerprint: Fingerprint::of(["x"]),
            nonce: Nonce::from_bytes([name; 16]),
            lease: Lease::new(TICK).unwrap_or_default(),
            // A window as short as can be, so that what keeps the record is its key's age.
            life: Life::from_stored(Recovery::Hold, window, window, age),
            key_time: Some(ORIGIN.after(DATED)),
            room: 64,
        }
    }

    /// Whether a node finds the key neither too old nor from the future.
    fn is_admitted(state: &State, now: Timestamp) -> bool {
        let key_time = ORIGIN.after(DATED);
        key_time > now.before(ticks(state.max_age)).max(state.floor) && key_time <= now.after(DRIFT)
    }

    fn claim(&self, state: &mut State, number: u8, name: u8) {
        let now = Self::judged_at(state);
        let mut claim = self.claim_of(name, state.max_age);
        if self.lacks(Dropped::JudgedInside) {
            // The node has judged it; the store does not.
            claim.key_time = None;
        } else if self.lacks(Dropped::KeptUntilTooOld) && state.row.0.is_none() && !Self::is_admitted(state, now) {
            state.refused = true;
            state.clients[usize::from(number)].phase = Phase::Idle;
            return;
        }
        let client = &mut state.clients[usize::from(number)];
        client.phase = Phase::Idle;
        match protocol::decide(state.row.0.as_ref(), &claim, now, state.floor) {
            Decision::Grant => {
                // Persisted before the grant is answered.
                state.ceiling = state.ceiling.max(ORIGIN.after(DATED));
                let (record, grant) = protocol::grant(state.row.0.take(), &claim, now);
                // The key is the key, whoever judged it.
                state.row.0 = Some(Record { key_time: Some(ORIGIN.after(DATED)), ..record });
                client.phase = Phase::Running(grant.token, name);
            }
            Decision::Answer(Claimed::TooOld) => state.refused = true,
            Decision::Answer(_) | Decision::Prolong(_) => {}
        }
    }
}

impl Model for Ages {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let floor = match self.setting {
            Setting::OnDisk => Timestamp::MIN,
            // It started long ago.
            Setting::InProcess | Setting::Ceiling => ORIGIN.before(ticks(1)),
        };
        vec![State {
            now: ORIGIN,
            largest: ORIGIN,
            row: Row(None),
            floor,
            ceiling: floor,
            clients: [2, 1].map(|requests| Client { requests, phase: Phase::Idle }),
            max_age: 2,
            effects: 0,
            ticks: 6,
            back: if self.setting == Setting::InProcess { 0 } else { 2 },
            restarts: 1,
            raises: 1,
            refused: false,
            purged: false,
            restarted: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&state.clients) {
            match client.phase {
                Phase::Idle if client.requests > 0 => actions.push(Action::Begin(number)),
                Phase::Idle => {}
                Phase::Asking(_) => actions.push(Action::Claim(number)),
                Phase::Running(..) => actions.extend([Action::Complete(number), Action::Release(number)]),
            }
        }
        let mut may = |left: u8, action: Action| {
            if left > 0 {
                actions.push(action);
            }
        };
        may(state.ticks, Action::Tick);
        may(state.back, Action::StepBack);
        may(state.restarts, Action::Restart);
        may(state.raises, Action::RaiseMaximumAge);
        may(u8::from(state.row.0.is_some()), Action::Sweep);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let now = Self::judged_at(last);
        match action {
            Action::Tick => {
                state.ticks -= 1;
                state.now = state.now.after(TICK);
                state.largest = state.largest.max(state.now);
            }
            Action::StepBack => {
                state.back -= 1;
                state.now = state.now.before(TICK);
            }
            Action::Restart => {
                state.restarts -= 1;
                state.restarted = true;
                if self.setting != Setting::OnDisk {
                    state.row = Row(None);
                    state.largest = state.now;
                    state.floor = match self.setting {
                        _ if self.lacks(Dropped::FloorAboveStart) => state.now,
                        Setting::Ceiling => state.ceiling,
                        // What ran in its time is dated at most at its clock and the drift.
                        _ => state.now.after(DRIFT),
                    };
                }
                // Its clients are in the same process, or were cut off: nobody is left to complete.
                state.clients.iter_mut().for_each(|client| client.phase = Phase::Idle);
            }
            Action::RaiseMaximumAge => {
                state.raises -= 1;
                state.max_age = 6;
            }
            Action::Begin(number) => {
                let client = &mut state.clients[usize::from(number)];
                client.requests -= 1;
                let name = number * 4 + client.requests + 1;
                let fits = !self.lacks(Dropped::JudgedInside) || Self::is_admitted(last, now);
                client.phase = if fits { Phase::Asking(name) } else { Phase::Idle };
            }
            Action::Claim(number) => {
                let Phase::Asking(name) = last.clients[usize::from(number)].phase else { return None };
                self.claim(&mut state, number, name);
            }
            Action::Complete(number) | Action::Release(number) => {
                let Phase::Running(token, name) = last.clients[usize::from(number)].phase else { return None };
                let holder = Holder { id: RECORD, token, nonce: Nonce::from_bytes([name; 16]) };
                let row = state.row.0.as_mut();
                if action == Action::Complete(number) {
                    let outcome = Outcome::new(201, Bytes::from_static(b"done"));
                    // The effect is in the transaction that completes.
                    let settled = protocol::complete(row, &holder, &outcome, now);
                    state.effects += u8::from(settled == Settled::Applied);
                } else {
                    let _ = protocol::release(row, &holder, ticks(1), now);
                }
                state.clients[usize::from(number)].phase = Phase::Idle;
            }
            Action::Sweep => {
                let record = last.row.0.as_ref()?;
                let SweepStep::Purge { .. } = protocol::sweep_holding(record, now, Duration::ZERO) else { return None };
                if let Some((_, key_time)) = record.floor().filter(|_| !self.lacks(Dropped::FloorRaised)) {
                    state.floor = state.floor.max(key_time);
                }
                state.row = Row(None);
                state.purged = true;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no key runs twice at any age", |_, state: &State| state.effects <= 1),
            Property::sometimes("refused for its age", |_, state: &State| state.refused),
            Property::sometimes("purged", |_, state: &State| state.purged && state.effects == 1),
            Property::sometimes("restarted", |_, state: &State| state.restarted && state.effects == 1),
        ]
    }
}
