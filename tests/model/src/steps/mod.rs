//! Model 4: calls to an external API that knows no token, as steps of a record.
//!
//! Records and steps are the core's [`protocol`](idempotency::protocol) and [`outbound::protocol`](idempotency::outbound::protocol) over one row each. Attempts ask before they call, call, and report;
//! they stand still in between, or die; answers are lost, askings and reports arrive late or twice; attempts are taken over, keys
//! are released. The provider is outside: what it did is counted, and nobody here sees it but by its answer, or by asking.

mod guard;
mod state;

use std::time::Duration;

use bytes::Bytes;
use idempotency::outbound::{Ended, StepLabel, StepResult, StepStanding};
use idempotency::{Nonce, Stored};
use stateright::{Model, Property};

use state::{Client, Conclusion, Message, Own, Phase, StepRow};
pub use state::{End, State};

use crate::records::state::Row;
use crate::ticks::{ORIGIN, TICK};

/// The model, in one of its settings, with or without one of its rules.
#[derive(Clone, Debug)]
pub struct Steps {
    /// What is done about an unknown outcome.
    pub setting: Setting,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

/// What is done about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Policy Hold. A process that stood still may send after its deadline.
    Hold,
    /// Policy Hold, and records that are held as well.
    HeldRecords,
    /// Policy Reconcile: the provider is asked. Nothing is sent after its deadline.
    Reconcile,
    /// Policy Retry, and the provider honours keys: calls under one key are one effect.
    Retry,
}

impl Setting {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Hold, Self::HeldRecords, Self::Reconcile, Self::Retry];
}

/// A rule that the model can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// A call is on record before its first byte leaves.
    RecordedFirst,
    /// Steps survive the release of their record.
    SurviveRelease,
    /// The outcome is unknown only when the call can no longer leave.
    QuietFirst,
    /// A late success is recorded.
    LateSuccessCounts,
    /// A late success of an earlier call outweighs the end of the one under way.
    LateSuccessOutweighs,
    /// While an earlier call may have happened, a refusal of this one is not the step's.
    RefusalOfItsOwn,
    /// A nonce begins one call at most.
    NonceBeginsOnce,
    /// An asking without an answer is taken back.
    TakenBack,
    /// Of two tries under one nonce, the one without an answer is taken back when the other begins nothing.
    LateTryTakenBack,
    /// A held key is not released while a step may have happened.
    NotReleasedWhileOpen,
}

impl Dropped {
    /// Every rule, and the setting in which it is missed.
    pub const ALL: [(Self, Setting); 10] = [
        (Self::RecordedFirst, Setting::Hold),
        (Self::SurviveRelease, Setting::Hold),
        (Self::QuietFirst, Setting::Reconcile),
        (Self::LateSuccessCounts, Setting::Hold),
        (Self::LateSuccessOutweighs, Setting::Retry),
        (Self::RefusalOfItsOwn, Setting::Retry),
        (Self::NonceBeginsOnce, Setting::Hold),
        (Self::TakenBack, Setting::Hold),
        (Self::LateTryTakenBack, Setting::Hold),
        (Self::NotReleasedWhileOpen, Setting::HeldRecords),
    ];
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens; the first number is a client's")]
pub enum Action {
    Tick,
    Claim(u8),
    Ask(u8, Asked),
    Send(u8, Response),
    NothingSent(u8),
    GiveUp(u8),
    Report(u8, bool),
    Deliver(usize),
    Reconcile(u8),
    Settle(u8),
    Crash(u8),
}

/// What becomes of an asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens")]
pub enum Asked {
    Answered,
    AnswerLost,
    NotYetArrived,
    SecondTryAnswered,
}

/// What the provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens")]
pub enum Response {
    Done,
    DoneAndLost,
    Refused,
}

const CLIENTS: usize = 2;

impl Steps {
    fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }

    fn steps_of(&self, state: &State, number: u8, actions: &mut Vec<Action>) {
        let client = &state.clients[usize::from(number)];
        match client.phase {
            Phase::Idle if client.requests > 0 => actions.push(Action::Claim(number)),
            Phase::Idle | Phase::Crashed => {}
            Phase::Running(_) => {
                actions.push(Action::Ask(number, Asked::Answered));
                if state.losses > 0 {
                    actions.extend([Asked::AnswerLost, Asked::NotYetArrived].map(|asked| Action::Ask(number, asked)));
                }
                if state.copies > 0 {
                    actions.push(Action::Ask(number, Asked::SecondTryAnswered));
                }
                if self.lacks(Dropped::RecordedFirst) {
                    actions.push(Action::Send(number, Response::Done));
                }
            }
            Phase::Calling(_, _, deadline) => {
                let late = matches!(self.setting, Setting::Hold | Setting::HeldRecords);
                if late || state.now < deadline {
                    let responses = [Response::Done, Response::DoneAndLost, Response::Refused];
                    actions.extend(responses.map(|response| Action::Send(number, response)));
                    actions.push(Action::NothingSent(number));
                }
                if state.now >= deadline {
                    actions.push(Action::GiveUp(number));
                }
            }
            Phase::Reporting(..) => actions.extend([true, false].map(|heard| Action::Report(number, heard))),
            Phase::Concluded(_, conclusion) => {
                actions.push(Action::Settle(number));
                if conclusion == Conclusion::Unknown && self.setting == Setting::Reconcile {
                    actions.push(Action::Reconcile(number));
                }
            }
        }
        if state.crashes > 0 && !matches!(client.phase, Phase::Idle | Phase::Crashed) {
            actions.push(Action::Crash(number));
        }
    }
}

impl Model for Steps {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // Askings that are lost or late are the same under every policy.
        let lossy = u8::from(matches!(self.setting, Setting::Hold | Setting::HeldRecords));
        vec![State {
            now: ORIGIN,
            row: Row(None),
            step: StepRow::default(),
            clients: [Client { requests: 1, askings: 0, phase: Phase::Idle }; CLIENTS],
            network: Vec::new(),
            charges: 0,
            ticks: 3,
            losses: lossy,
            copies: lossy,
            crashes: 1,
            reported: false,
            unknown: false,
            succeeded: false,
            failed: false,
            retried: false,
            reconciled: false,
            stood: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for number in 0..CLIENTS as u8 {
            self.steps_of(state, number, actions);
        }
        actions.extend((0..state.network.len()).map(Action::Deliver));
        if state.ticks > 0 {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let phase = |number: u8| last.clients[usize::from(number)].phase;
        let next = |state: &mut State, number: u8, phase| state.clients[usize::from(number)].phase = phase;
        match action {
            Action::Tick => {
                state.ticks -= 1;
                state.now = state.now.after(TICK);
            }
            Action::Claim(number) => self.claim(&mut state, number),
            Action::Ask(number, asked) => self.ask(&mut state, number, asked),
            Action::Send(number, response) => {
                if response != Response::Refused {
                    let keyed = self.setting == Setting::Retry;
                    state.charges = if keyed { 1 } else { state.charges + 1 };
                }
                let end = match response {
                    Response::Done => End::Done,
                    Response::DoneAndLost => End::Unknown,
                    Response::Refused => End::Refused,
                };
                match phase(number) {
                    Phase::Calling(own, asking, _) => next(&mut state, number, Phase::Reporting(own, asking, end)),
                    // Not asked for: nothing is known of it here.
                    Phase::Running(own) => next(&mut state, number, Phase::Concluded(own, Conclusion::Done)),
                    _ => return None,
                }
            }
            Action::NothingSent(number) | Action::GiveUp(number) => {
                let Phase::Calling(own, asking, _) = phase(number) else { return None };
                let end = if matches!(action, Action::GiveUp(_)) { End::Unknown } else { End::NotDone };
                next(&mut state, number, Phase::Reporting(own, asking, end));
            }
            Action::Report(number, heard) => {
                let Phase::Reporting(own, asking, end) = phase(number) else { return None };
                let mut standing = None;
                if heard {
                    if let Ended::Logged { standing: stands, .. } = self.end(&mut state, asking, end) {
                        standing = Some(stands);
                    }
                } else {
                    // `report_until_answered`.
                    send(&mut state.network, Message::End(asking, end));
                }
                let (own, conclusion) = match (end, standing) {
                    (_, Some(StepStanding::Failed(_))) => (Own { open: false, ..own }, Conclusion::NotDone),
                    (End::Done, _) | (_, Some(StepStanding::Succeeded(_))) => (own, Conclusion::Done),
                    _ => (own, Conclusion::Unknown),
                };
                next(&mut state, number, Phase::Concluded(own, conclusion));
            }
            Action::Deliver(at) => match state.network.remove(at) {
                // Whose answer nobody hears.
                Message::Begin(token, name, asking) => drop(self.begin(&mut state, token, name, asking)),
                Message::End(asking, end) => drop(self.end(&mut state, asking, end)),
            },
            Action::Reconcile(number) => {
                let Phase::Concluded(own, _) = phase(number) else { return None };
                self.reconcile(&mut state);
                // `Guard::call` asks again.
                next(&mut state, number, Phase::Running(own));
            }
            Action::Settle(number) => {
                let Phase::Concluded(own, conclusion) = phase(number) else { return None };
                self.settle(&mut state, own, conclusion);
                next(&mut state, number, Phase::Idle);
            }
            Action::Crash(number) => {
                state.crashes -= 1;
                state.unknown = true;
                next(&mut state, number, Phase::Crashed);
            }
        }
        let standing = state.step.step.as_ref().map(|step| step.standing(state.now));
        state.succeeded |= matches!(standing, Some(StepStanding::Succeeded(_)));
        state.failed |= matches!(standing, Some(StepStanding::Failed(_)));
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.clients.iter().all(|client| client.askings <= 2)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = |name, holds: fn(&Self, &State) -> bool| Property::always(name, holds);
        let sometimes = |name, seen: fn(&Self, &State) -> bool| Property::sometimes(name, seen);
        let mut properties = vec![
            always("at most one effect", |_, state| state.charges <= 1),
            always("a reported success is on record", |_, state| !state.reported || state.stands_done()),
            always("what failed is not done", |_, state| !state.stands_failed() || state.charges == 0),
            always("a held key is not free while its step may have happened", |model, state| {
                let free = state.row.0.as_ref().is_some_and(|record| record.stored == Stored::Released);
                model.setting != Setting::HeldRecords || !free || state.charges == 0
            }),
            always("no lost message holds the step", |_, state| !state.is_stuck()),
            sometimes("succeeded", |_, state| state.succeeded),
            sometimes("failed", |_, state| state.failed),
            sometimes("called again", |_, state| state.retried),
            sometimes("stands", |_, state| state.stood),
        ];
        if self.setting == Setting::Reconcile {
            properties.push(sometimes("reconciled", |_, state| state.reconciled));
        }
        properties
    }
}

fn send(network: &mut Vec<Message>, message: Message) {
    network.push(message);
    network.sort_unstable();
}

fn nonce(name: u8) -> Nonce {
    Nonce::from_bytes([name; 16])
}

fn result() -> StepResult {
    StepResult::Kept(Bytes::from_static(b"done"))
}

#[expect(clippy::unwrap_used, reason = "a short word is a label")]
fn label() -> StepLabel {
    StepLabel::parse("charge").unwrap()
}

const QUIET: Duration = TICK;
