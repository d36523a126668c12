//! Random walks through the model, to be replayed against real stores.

use std::time::Duration;

use idempotency::{Entry, RecordId, Timestamp};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use stateright::Model as _;

use super::message::{Answer, Op, Request};
use super::state::{Budget, State};
use super::{Action, ClientSetting, RECORD, Records, Setting, ticks};

/// What arrives at the store in a walk, and what the model's store makes of it.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The store's clock.
    pub at: Timestamp,
    /// What arrives; nothing when it is swept.
    pub op: Option<Op>,
    /// The answer.
    pub answer: Option<Answer>,
    /// What an operator sees afterwards.
    pub entry: Option<Entry>,
}

impl Records {
    /// A model for walks that are longer than what can be explored: everything may go wrong, several times. `hold` is how long
    /// the store under test holds a row for its token, `back` how often its clock may step back: not after a sweep, since a
    /// store's clock then shows no less than when something was forgotten.
    #[must_use]
    pub fn to_walk(origin: Timestamp, hold: Duration, back: u8) -> Self {
        let mut setting = Setting::lost_messages();
        let hold = u8::try_from(hold.as_secs() / 60).unwrap_or(u8::MAX);
        setting = Setting { name: "walk", lease: 2, response: 2, tombstone: 5, dead: 3, hold, doubts: true, ..setting };
        setting.clients = [(super::settings::HOLD, 1), (super::settings::HOLD, 2), (super::settings::RERUN, 1)]
            .map(|(recovery, fingerprint)| ClientSetting { recovery, fingerprint, requests: 3 })
            .to_vec();
        setting.budget =
            Budget { ticks: 20, back, losses: 6, copies: 6, crashes: 1, resolutions: 4, sweeps: 6, renewals: 6 };
        Self { origin, ..Self::new(setting) }
    }

    /// A walk of at most so many steps. A store that `tidies` clears away what is over beside every claim.
    pub fn walk(&self, steps: usize, tidies: bool, random: &mut impl rand::Rng) -> Vec<Arrival> {
        let Some(mut state) = self.init_states().pop() else { return Vec::new() };
        let mut arrivals = Vec::new();
        for _ in 0..steps {
            if random.random_ratio(1, 40) {
                // Beyond every window, and beyond what the row is held for.
                state.now = state.now.after(ticks(90));
            }
            let mut actions = Vec::new();
            self.actions(&state, &mut actions);
            // A client that makes no more nonces than have names.
            actions.retain(|action| !matches!(action, Action::Claim(n) if state.clients[usize::from(*n)].nonces > 5));
            let Some(action) = actions.choose(random).copied() else { break };
            let Some(mut next) = self.next_state(&state, action) else { continue };
            let arriving = match action {
                Action::Deliver(message) | Action::LoseAnswer(message) => Some(message.op),
                _ => None,
            };
            if tidies && matches!(arriving, Some(Op::Claim(_))) {
                self.sweep(&mut next.row, next.now);
            }
            if action == Action::SweepDeletes {
                next.budget.back = 0;
            }
            if next.clients.iter().any(|client| client.nonces > 7) {
                break;
            }
            if arriving.is_some() || action == Action::SweepDeletes {
                arrivals.push(self.arrival(&state, &next, arriving));
            }
            state = next;
        }
        arrivals
    }

    fn arrival(&self, before: &State, after: &State, op: Option<Op>) -> Arrival {
        let answer = op.map(|op| {
            let mut row = before.row.clone();
            self.apply(&mut row, &op.request(RECORD, &self.setting), before.now)
        });
        let entry = after.row.0.as_ref().and_then(|record| record.entry(RECORD, after.now));
        Arrival { at: before.now, op, answer, entry }
    }

    /// An arriving message as it is sent about the record `id`.
    #[must_use]
    pub fn request(&self, op: Op, id: RecordId) -> Request {
        op.request(id, &self.setting)
    }
}
