//! Model 1: one record, and clients that claim, run, lose answers, crash and come back.
//!
//! The store is the core's [`protocol`](idempotency::protocol) over one row. Clients do what the core's engine does, by the
//! names of its functions. Messages arrive whenever they like, twice, and after their sender gave up; answers are lost; processes stand
//! still between any two steps, or die; the clock goes on and steps back; a sweeper looks now and deletes later; an
//! operator resolves. What is right is judged by an [observer](state::Seen) who knows nothing of the core.

mod engine;
pub mod message;
mod observer;
pub mod settings;
pub mod state;
mod store;
pub mod walk;

use idempotency::{FencingToken, RecordId, Standing, Timestamp};
use stateright::{Model, Property};

use message::{Message, Name, Op};
pub use settings::{ClientSetting, Setting};
use state::{Client, Phase, Row, Seen, Settlement, State};

pub(crate) use crate::ticks::ticks;
use crate::ticks::{ORIGIN, TICK};

/// The model, in one of its settings, with or without one of its rules.
#[derive(Clone, Debug)]
pub struct Records {
    /// Who takes part and what may happen.
    pub setting: Setting,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
    /// When it begins.
    pub origin: Timestamp,
}

/// A rule that the model can do without: each is a mutant that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// Life settings are those of the first claim.
    LifeKept,
    /// A purge judges again in the statement that deletes.
    PurgeLooksAgain,
    /// No window ends an attempt in flight.
    InFlightOutlivesWindows,
    /// A repeated claim changes nothing on the record.
    OwnClaimChangesNothing,
    /// The token is kept over a release.
    TokenKept,
    /// A row stays until its token is further in the past than the clock can step back.
    TokenHeld,
    /// A completion never inserts.
    CompleteNeverInserts,
    /// A lease that has ended is not renewed.
    RenewedInTime,
    /// Under Rerun no success is answered before it is on record.
    SuccessAfterApplied,
    /// A superseded attempt's own response is thrown away.
    SupersededThrownAway,
    /// A claimer that gave up abandons.
    Abandon,
    /// Of two tries under one nonce, the one without an answer is abandoned when the other is answered without a grant.
    LateTryAbandoned,
    /// An abandon that fails is tried again in the background.
    FailedAbandonTriedAgain,
    /// An abandoned nonce is dead.
    DeadNonces,
    /// Dead nonces survive the record's later states.
    DeadNoncesSurvive,
    /// A resolution names the token that the resolver saw.
    ResolveCompares,
    /// A resolution replaces the nonce.
    ResolveReplacesNonce,
    /// What did not happen is said only when the old attempt can no longer act.
    ResolveWhenDead,
    /// The operator opens the fence before looking.
    FenceOpenedFirst,
    /// The token that the fence was opened with is passed to the record.
    FenceTokenPassed,
    /// A claim is asked again under the same nonce.
    SameNonceAgain,
    /// Whoever is woken compares the fingerprint again.
    FingerprintComparedAgain,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The store's clock goes on.
    Tick,
    /// It steps back.
    StepBack,
    /// A client begins a request: `Engine::claim`.
    Claim(u8),
    /// A waiter asks again, under the same nonce.
    Poll(u8),
    /// A message arrives, and its answer too.
    Deliver(Message),
    /// A message arrives, and its answer is lost.
    LoseAnswer(Message),
    /// A second copy of a message is on its way.
    Copy(Message),
    /// A client's connection breaks. What was sent may still arrive, once or not at all, and nobody hears the answer.
    Disconnect(u8, bool),
    /// A client waits no longer: `within`.
    TimeOut(u8),
    /// `Engine::ask` tries once more on a broken connection.
    AskAgain(u8),
    /// The handler's effect happens.
    Effect(u8),
    /// The handler ends: `Held::settle`.
    Settle(u8, Settlement),
    /// The lease is renewed: `renew`.
    Renew(u8),
    /// The process is killed.
    Crash(u8),
    /// The operator opens the fence.
    OpenFence,
    /// The operator looks, and resolves by what is seen.
    Resolve,
    /// The sweeper sees a row that is over.
    SweepLooks,
    /// The sweeper deletes it.
    SweepDeletes,
}

impl Records {
    /// The model with all of its rules.
    #[must_use]
    pub const fn new(setting: Setting) -> Self {
        Self { setting, dropped: None, origin: ORIGIN }
    }

    /// The model without one.
    #[must_use]
    pub const fn without(setting: Setting, dropped: Dropped) -> Self {
        Self { setting, dropped: Some(dropped), origin: ORIGIN }
    }

    pub(crate) fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }

    fn actions_of(&self, state: &State, number: u8, actions: &mut Vec<Action>) {
        let client = &state.clients[usize::from(number)];
        let budget = &state.budget;
        match client.phase {
            Phase::Idle if client.requests > 0 => actions.push(Action::Claim(number)),
            Phase::Idle | Phase::Crashed => {}
            Phase::Waiting { .. } => actions.extend([Action::Poll(number), Action::TimeOut(number)]),
            Phase::Asking { lost, .. }
            | Phase::Renaming { lost, .. }
            | Phase::Looking { lost, .. }
            | Phase::Settling { lost, .. } => {
                if lost {
                    actions.push(Action::TimeOut(number));
                } else if budget.losses > 0 {
                    actions.extend([false, true].map(|arrives| Action::Disconnect(number, arrives)));
                }
                if matches!(client.phase, Phase::Asking { lost: true, again: false, .. }) {
                    actions.push(Action::AskAgain(number));
                }
            }
            Phase::Running(attempt) => {
                if !attempt.effect {
                    actions.push(Action::Effect(number));
                }
                for settlement in [Settlement::Complete, Settlement::Release, Settlement::InDoubt] {
                    // Completed is what had its effect, released what for certain had none.
                    let fits = match settlement {
                        Settlement::Complete => attempt.effect,
                        Settlement::Release => !attempt.effect && self.setting.releases,
                        Settlement::InDoubt => self.setting.doubts,
                    };
                    if fits {
                        actions.push(Action::Settle(number, settlement));
                    }
                }
                let renewing = state.network.iter().any(|message| message.op == Op::Renew(attempt.own));
                if budget.renewals > 0 && !renewing {
                    actions.push(Action::Renew(number));
                }
            }
        }
        if budget.crashes > 0 && !matches!(client.phase, Phase::Idle | Phase::Crashed) {
            actions.push(Action::Crash(number));
        }
    }
}

impl Model for Records {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let client = |client: &ClientSetting| Client { phase: Phase::Idle, requests: client.requests, nonces: 0 };
        vec![State {
            now: self.origin,
            row: Row(None),
            clients: self.setting.clients.iter().map(client).collect(),
            network: Vec::new(),
            sweeping: false,
            opened: None,
            fence: None,
            budget: self.setting.budget,
            seen: Seen::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        for number in 0..state.clients.len() {
            self.actions_of(state, number as u8, actions);
        }
        let mut last = None;
        for message in &state.network {
            if last == Some(message) {
                continue;
            }
            last = Some(message);
            actions.push(Action::Deliver(*message));
            if budget.losses > 0 && !message.copy && self.is_waited_for(state, message.op) {
                actions.push(Action::LoseAnswer(*message));
            }
            // A claim is sent again by the engine, and by nobody else.
            if budget.copies > 0 && !message.copy && !matches!(message.op, Op::Claim(_)) {
                actions.push(Action::Copy(*message));
            }
        }
        if budget.ticks > 0 {
            actions.push(Action::Tick);
        }
        if budget.back > 0 {
            actions.push(Action::StepBack);
        }
        if budget.resolutions > 0 {
            let is_above = |record: &idempotency::Record| state.opened > record.token;
            let opened = state.row.0.as_ref().is_some_and(is_above);
            if self.setting.fenced && !opened && is_in_doubt(&state.row, state.now) {
                actions.push(Action::OpenFence);
            }
            actions.push(Action::Resolve);
        }
        if budget.sweeps > 0 && !state.sweeping && self.is_over(&state.row, state.now) {
            actions.push(Action::SweepLooks);
        }
        if state.sweeping {
            actions.push(Action::SweepDeletes);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => {
                state.budget.ticks -= 1;
                state.now = state.now.after(TICK);
            }
            Action::StepBack => {
                state.budget.back -= 1;
                state.seen.latest = state.seen.latest.max(Some(state.now));
                state.now = state.now.before(TICK);
            }
            Action::Deliver(message) => self.deliver(&mut state, message, true),
            Action::LoseAnswer(message) => {
                state.budget.losses -= 1;
                self.deliver(&mut state, message, false);
            }
            Action::Copy(message) => {
                state.budget.copies -= 1;
                send(&mut state.network, message.op, true);
            }
            Action::Claim(number) => self.begin(&mut state, number),
            Action::Poll(number) | Action::AskAgain(number) => self.ask_again(&mut state, number),
            Action::Disconnect(number, arrives) => {
                state.budget.losses -= 1;
                self.disconnect(&mut state, number, arrives)?;
            }
            Action::TimeOut(number) => self.time_out(&mut state, number),
            Action::Effect(number) => self.effect(&mut state, number),
            Action::Settle(number, settlement) => self.settle(&mut state, number, settlement),
            Action::Renew(number) => {
                let Phase::Running(attempt) = state.clients[usize::from(number)].phase else { return None };
                state.budget.renewals -= 1;
                send(&mut state.network, Op::Renew(attempt.own), false);
            }
            Action::Crash(number) => {
                state.budget.crashes -= 1;
                state.seen.crashed = true;
                state.clients[usize::from(number)].phase = Phase::Crashed;
            }
            Action::OpenFence => {
                // Above the record's and the fence's own, whatever the clock says.
                let reached = state.fence.map(|(token, _)| token);
                let seen = state.row.0.as_ref().and_then(|record| record.token);
                let token = FencingToken::after(reached.max(seen), Timestamp::MIN);
                state.fence = Some((token, None));
                state.opened = Some(token);
            }
            Action::Resolve => {
                let op = self.judge(&state)?;
                state.budget.resolutions -= 1;
                send(&mut state.network, op, false);
            }
            Action::SweepLooks => {
                state.budget.sweeps -= 1;
                state.sweeping = true;
            }
            Action::SweepDeletes => {
                state.sweeping = false;
                let before = state.row.0.is_some();
                self.sweep(&mut state.row, state.now);
                if before && state.row.0.is_none() {
                    self.observe_purge(&mut state);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            always("at most one effect under Hold", |_, state| state.seen.effects.iter().all(|effects| *effects <= 1)),
            always("tokens grow", |_, state| !state.seen.wrong.token),
            always("at most one attempt holds the claim", |_, state| !state.seen.wrong.two_holders),
            always("what was done is not granted again", |_, state| !state.seen.wrong.granted_after_done),
            always("only the holder settles", |_, state| !state.seen.wrong.stranger_settled),
            always("the superseded change nothing", |_, state| !state.seen.wrong.superseded_changed),
            always("all answers are the one on record", |_, state| !state.seen.wrong.two_answers),
            always("nobody gets the answer to another request", |_, state| !state.seen.wrong.others_answer),
            always("the fence lets the holder in", |_, state| !state.seen.wrong.holder_fenced),
            always("no lost message holds the key", |model, state| !model.is_stuck(state)),
        ];
        properties.extend(self.setting.sights());
        properties
    }
}

impl Records {
    /// Nothing is under way any more, and the key is held for a claim that nobody ever ran with. A clock that stepped back catches
    /// up in the end.
    fn is_stuck(&self, state: &State) -> bool {
        let quiet = state.network.is_empty()
            && !state.seen.crashed
            && state.clients.iter().all(|client| matches!(client.phase, Phase::Idle));
        let Some(record) = state.row.0.as_ref().filter(|_| quiet) else { return false };
        let held = matches!(
            record.standing(state.seen.latest.map_or(state.now, |latest| latest.max(state.now))),
            Standing::InFlight { .. } | Standing::LeaseEnded | Standing::InDoubt { .. }
        );
        held && state.seen.ran & Name::of(record.nonce).bit() == 0
    }
}

/// The record of the models.
pub const RECORD: RecordId = RecordId::from_bytes([7; 32]);

fn is_in_doubt(row: &Row, now: Timestamp) -> bool {
    row.0.as_ref().is_some_and(|record| matches!(record.standing(now), Standing::InDoubt { .. }))
}

fn always(name: &'static str, holds: fn(&Records, &State) -> bool) -> Property<Records> {
    Property::always(name, holds)
}

pub(crate) fn send(network: &mut Vec<Message>, op: Op, copy: bool) {
    network.push(Message { op, copy });
    network.sort_unstable();
}
