//! What clients do: the core's `Engine` and `Held`, step by step.

use idempotency::{Claimed, Recovery, Settled, Standing, State as Stands};

use super::message::{Answer, FOUND, Message, Name, Op, Own, told};
use super::state::{Attempt, Phase, Settlement, State};
use super::{Dropped, RECORD, Records, send};

impl Records {
    /// `Engine::claim`: a new nonce, and the first asking.
    pub(super) fn begin(&self, state: &mut State, number: u8) {
        state.clients[usize::from(number)].requests -= 1;
        let name = new_name(state, number);
        ask(state, number, name, false);
    }

    /// `Engine::ask`'s second try, and a waiter's next one: under the same nonce.
    pub(super) fn ask_again(&self, state: &mut State, number: u8) {
        let (mut name, again) = match state.clients[usize::from(number)].phase {
            Phase::Asking { name, .. } => (name, true),
            Phase::Waiting { name, again } => (name, again),
            _ => return,
        };
        if self.lacks(Dropped::SameNonceAgain) {
            name = new_name(state, number);
        }
        ask(state, number, name, again);
    }

    /// Whether somebody waits for the answer to this.
    pub(super) fn is_waited_for(&self, state: &State, op: Op) -> bool {
        (0..state.clients.len()).any(|number| waits_for(state.clients[number].phase) == Some(op))
    }

    /// The connection breaks while an answer is waited for.
    pub(super) fn disconnect(&self, state: &mut State, number: u8, arrives: bool) -> Option<()> {
        let client = &mut state.clients[usize::from(number)];
        let op = waits_for(client.phase)?;
        client.phase = lost(client.phase);
        let at = state.network.iter().position(|message| message.op == op && !message.copy)?;
        state.network.remove(at);
        if arrives {
            send(&mut state.network, op, true);
        }
        Some(())
    }

    /// `within`: the answer is waited for no longer.
    pub(super) fn time_out(&self, state: &mut State, number: u8) {
        let phase = state.clients[usize::from(number)].phase;
        state.clients[usize::from(number)].phase = Phase::Idle;
        match phase {
            // `AbandonOnDrop`.
            Phase::Asking { name, .. } | Phase::Looking { name, .. } => self.abandon_until_answered(state, name),
            Phase::Renaming { name, .. } if !self.lacks(Dropped::FailedAbandonTriedAgain) => {
                self.abandon_until_answered(state, name);
            }
            Phase::Waiting { name, again: true } => self.abandon_late_try(state, name),
            // `settle_until_answered`.
            Phase::Settling { attempt, settlement, .. } => {
                send(&mut state.network, op_of(attempt, settlement), false);
                let success = settlement == Settlement::Complete;
                let early = attempt.recovery() == Recovery::Hold || self.lacks(Dropped::SuccessAfterApplied);
                // An operator may resolve otherwise meanwhile: the one case in which the record says something else.
                if success && early && self.setting.budget.resolutions == 0 {
                    self.answer(state, number, attempt.life, attempt.own.name.0);
                }
            }
            _ => {}
        }
    }

    fn abandon_until_answered(&self, state: &mut State, name: Name) {
        if !self.lacks(Dropped::Abandon) {
            send(&mut state.network, Op::Abandon(name), false);
        }
    }

    /// Two tries were sent and one was answered, without a grant: the other one may still be on its way.
    fn abandon_late_try(&self, state: &mut State, name: Name) {
        if !self.lacks(Dropped::LateTryAbandoned) {
            self.abandon_until_answered(state, name);
        }
    }

    /// The handler's effect.
    pub(super) fn effect(&self, state: &mut State, number: u8) {
        let Phase::Running(mut attempt) = state.clients[usize::from(number)].phase else { return };
        if self.setting.fenced {
            let own = (attempt.own.token, Some(attempt.own.name));
            let admitted = state.fence.is_none_or(|fence| own.0 > fence.0 || own == fence);
            if !admitted {
                let now = state.now;
                let holds = |held: super::state::Hold| held.name == attempt.own.name && now < held.lease_until;
                let holds = state.seen.held.is_some_and(holds);
                state.seen.wrong.holder_fenced |= holds;
                return self.settle(state, number, Settlement::Release);
            }
            state.fence = Some(own);
        }
        attempt.effect = true;
        state.clients[usize::from(number)].phase = Phase::Running(attempt);
        if attempt.recovery() == Recovery::Hold {
            state.seen.effects[usize::from(attempt.life)] += 1;
        }
    }

    /// `Held::settle`.
    pub(super) fn settle(&self, state: &mut State, number: u8, settlement: Settlement) {
        let Phase::Running(attempt) = state.clients[usize::from(number)].phase else { return };
        send(&mut state.network, op_of(attempt, settlement), false);
        state.clients[usize::from(number)].phase = Phase::Settling { attempt, settlement, lost: false };
    }

    /// A message arrives at the store.
    pub(super) fn deliver(&self, state: &mut State, message: Message, answered: bool) {
        let Some(at) = state.network.iter().position(|other| *other == message) else { return };
        state.network.remove(at);
        let before = state.row.clone();
        let answer = self.apply(&mut state.row, &message.op.request(RECORD, &self.setting), state.now);
        self.observe(state, message.op, &before, &answer);
        if message.copy {
            return;
        }
        let waiting =
            (0..state.clients.len()).find(|number| waits_for(state.clients[*number].phase) == Some(message.op));
        let Some(number) = waiting else { return };
        if answered {
            self.hear(state, number as u8, message.op, answer);
        } else {
            state.clients[number].phase = lost(state.clients[number].phase);
        }
    }

    fn hear(&self, state: &mut State, number: u8, op: Op, answer: Answer) {
        let phase = state.clients[usize::from(number)].phase;
        match (phase, answer) {
            (Phase::Asking { name, again, .. }, Answer::Claimed(claimed)) => {
                self.claimed(state, number, (name, again), claimed);
            }
            (Phase::Looking { name, .. }, Answer::Claimed(claimed)) => {
                state.clients[usize::from(number)].phase = Phase::Idle;
                match claimed {
                    Claimed::Granted(_) => self.abandon_until_answered(state, name),
                    Claimed::Replay { outcome, .. } => self.replay(state, number, told(&outcome)),
                    _ => {}
                }
            }
            (Phase::Renaming { .. }, Answer::Abandoned) => {
                let name = new_name(state, number);
                ask(state, number, name, false);
            }
            (Phase::Settling { attempt, settlement, .. }, Answer::Settled(settled)) => {
                self.settled(state, number, attempt, settlement, settled);
            }
            _ => debug_assert!(false, "nobody waits for {op:?} in {phase:?}"),
        }
    }

    /// What `Engine::claim` makes of the store's answer.
    fn claimed(&self, state: &mut State, number: u8, (name, again): (Name, bool), claimed: Claimed) {
        let next = match claimed {
            Claimed::Granted(grant) if !grant.lease_left.is_zero() => {
                state.seen.ran |= name.bit();
                Phase::Running(Attempt {
                    own: Own { token: grant.token, name },
                    recovery: grant.recovery == Recovery::Rerun,
                    life: state.seen.life,
                    effect: false,
                })
            }
            Claimed::Granted(_) => return self.abandon_and_rename(state, number, name),
            Claimed::InDoubt(doubt) if doubt.own => return self.abandon_and_rename(state, number, name),
            Claimed::Refused => {
                let name = new_name(state, number);
                return ask(state, number, name, false);
            }
            Claimed::InFlight { .. } if self.setting.waits => Phase::Waiting { name, again },
            Claimed::Replay { outcome, .. } => {
                self.replay(state, number, told(&outcome));
                Phase::Idle
            }
            _ => Phase::Idle,
        };
        if again && next == Phase::Idle {
            self.abandon_late_try(state, name);
        }
        state.clients[usize::from(number)].phase = next;
    }

    fn abandon_and_rename(&self, state: &mut State, number: u8, name: Name) {
        send(&mut state.network, Op::Abandon(name), false);
        state.clients[usize::from(number)].phase = Phase::Renaming { name, lost: false };
    }

    fn settled(&self, state: &mut State, number: u8, attempt: Attempt, settlement: Settlement, settled: Settled) {
        state.clients[usize::from(number)].phase = Phase::Idle;
        if settlement != Settlement::Complete {
            return;
        }
        let superseded = settled == Settled::Superseded;
        state.seen.sights.superseded |= superseded;
        if !superseded || self.lacks(Dropped::SupersededThrownAway) {
            self.answer(state, number, attempt.life, attempt.own.name.0);
        } else {
            self.look(state, number);
        }
    }

    /// `Engine::look`: runs nothing and takes nothing over.
    fn look(&self, state: &mut State, number: u8) {
        let stands = state.row.0.as_ref().and_then(|record| record.state(state.now));
        if matches!(stands, Some(Stands::Completed | Stands::Tombstone | Stands::InDoubt)) {
            let name = new_name(state, number);
            send(&mut state.network, Op::Claim(name), false);
            state.clients[usize::from(number)].phase = Phase::Looking { name, lost: false };
        }
    }

    fn replay(&self, state: &mut State, number: u8, outcome: Option<u8>) {
        let Some(outcome) = outcome else { return };
        self.answer(state, number, state.seen.life, outcome);
    }

    /// A client is told that it succeeded, and what came of it.
    fn answer(&self, state: &mut State, number: u8, life: u8, outcome: u8) {
        let clients = &self.setting.clients;
        let own = clients[usize::from(number)].fingerprint;
        state.seen.wrong.others_answer |= outcome != FOUND && clients[Name(outcome).client()].fingerprint != own;
        let told = &mut state.seen.answers[usize::from(life)];
        state.seen.wrong.two_answers |= told.is_some_and(|told| told != outcome);
        *told = Some(outcome);
    }

    /// What an operator makes of a record in doubt; nothing if nobody can know yet.
    pub(super) fn judge(&self, state: &State) -> Option<Op> {
        let record = state.row.0.as_ref()?;
        let Standing::InDoubt { .. } = record.standing(state.now) else { return None };
        let token = record.token?;
        if state.seen.effects[usize::from(state.seen.life)] > 0 {
            return Some(Op::ResolveHappened(token));
        }
        let name = Name::of(record.nonce);
        let may_act = state.clients.iter().any(|client| may_act(client.phase, name));
        let knows = match self.setting.fenced {
            true => state.opened > Some(token) || self.lacks(Dropped::FenceOpenedFirst),
            false => !may_act || self.lacks(Dropped::ResolveWhenDead),
        };
        let passed = state.opened.filter(|_| !self.lacks(Dropped::FenceTokenPassed));
        knows.then_some(Op::ResolveDidNotHappen(token, passed))
    }
}

fn new_name(state: &mut State, number: u8) -> Name {
    let client = &mut state.clients[usize::from(number)];
    client.nonces += 1;
    Name::new(number, client.nonces - 1)
}

fn ask(state: &mut State, number: u8, name: Name, again: bool) {
    send(&mut state.network, Op::Claim(name), false);
    state.clients[usize::from(number)].phase = Phase::Asking { name, lost: false, again };
}

fn waits_for(phase: Phase) -> Option<Op> {
    match phase {
        Phase::Asking { name, lost: false, .. } | Phase::Looking { name, lost: false } => Some(Op::Claim(name)),
        Phase::Renaming { name, lost: false } => Some(Op::Abandon(name)),
        Phase::Settling { attempt, settlement, lost: false } => Some(op_of(attempt, settlement)),
        _ => None,
    }
}

fn lost(phase: Phase) -> Phase {
    match phase {
        Phase::Asking { name, again, .. } => Phase::Asking { name, lost: true, again },
        Phase::Looking { name, .. } => Phase::Looking { name, lost: true },
        Phase::Renaming { name, .. } => Phase::Renaming { name, lost: true },
        Phase::Settling { attempt, settlement, .. } => Phase::Settling { attempt, settlement, lost: true },
        other => other,
    }
}

fn may_act(phase: Phase, name: Name) -> bool {
    match phase {
        Phase::Asking { name: own, .. } | Phase::Renaming { name: own, .. } | Phase::Looking { name: own, .. } => {
            own == name
        }
        Phase::Running(attempt) => attempt.own.name == name,
        _ => false,
    }
}

fn op_of(attempt: Attempt, settlement: Settlement) -> Op {
    match settlement {
        Settlement::Complete => Op::Complete(attempt.own),
        Settlement::Release => Op::Release(attempt.own),
        Settlement::InDoubt => Op::MarkInDoubt(attempt.own),
    }
}
