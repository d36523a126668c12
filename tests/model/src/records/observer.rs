//! Judging what the store does, by the words of the protocol's description and none of its code.

use idempotency::{Claimed, Grant, Recovery, Resolved, Settled};

use super::message::{Answer, Name, Op, Own};
use super::state::{Hold, Row, State};
use super::{Records, ticks};

impl Records {
    /// Sees what the store made of a message.
    pub(super) fn observe(&self, state: &mut State, op: Op, before: &Row, answer: &Answer) {
        match (op, answer) {
            (Op::Claim(name), Answer::Claimed(claimed)) => match claimed {
                Claimed::Granted(grant) => self.granted(state, name, grant, before),
                Claimed::Refused => state.seen.sights.refused = true,
                Claimed::Replay { .. } => state.seen.sights.replay = true,
                _ => {}
            },
            (
                Op::Renew(own) | Op::Complete(own) | Op::Release(own) | Op::MarkInDoubt(own),
                Answer::Settled(settled),
            ) => match settled {
                Settled::Applied => self.settled_by(state, op, own),
                Settled::AlreadyApplied => {}
                Settled::Superseded => state.seen.wrong.superseded_changed |= state.row != *before,
            },
            (Op::Abandon(name), _) if state.seen.held.is_some_and(|held| held.name == name) => state.seen.held = None,
            (Op::ResolveHappened(_), Answer::Resolved(Resolved::Applied)) => {
                state.seen.sights.resolved = true;
                state.seen.held = None;
                state.seen.done_until = Some(state.now.after(ticks(self.setting.tombstone)));
            }
            (Op::ResolveDidNotHappen(..), Answer::Resolved(Resolved::Applied)) => {
                state.seen.sights.resolved = true;
                state.seen.held = None;
            }
            (_, Answer::Resolved(_)) => state.seen.wrong.superseded_changed |= state.row != *before,
            _ => {}
        }
    }

    fn granted(&self, state: &mut State, name: Name, grant: &Grant, before: &Row) {
        let (now, seen) = (state.now, &mut state.seen);
        if seen.held.is_some_and(|held| held.name == name) && grant.token.get() == seen.token {
            seen.sights.again = true;
            return;
        }
        seen.wrong.token |= grant.token.get() <= seen.token;
        seen.token = seen.token.max(grant.token.get());
        // No record, or nothing but a stub of dead nonces.
        let mut new_life = before.0.as_ref().is_none_or(|record| record.life.is_none());
        if let Some(held) = seen.held {
            if now >= held.lease_until.after(ticks(self.setting.tombstone)) {
                // Forgotten in doubt: a possible escape.
                new_life = true;
                seen.next_life();
            } else if seen.rerun && now >= held.lease_until {
                seen.sights.takeover = true;
            } else {
                seen.wrong.two_holders = true;
            }
        } else if let Some(until) = seen.done_until {
            seen.wrong.granted_after_done |= now < until;
            new_life = true;
            // Of a store that forgets too early the observer says nothing but that.
            if now >= until {
                seen.next_life();
            }
            seen.done_until = None;
        }
        if new_life {
            seen.rerun = self.setting.clients[name.client()].recovery == Recovery::Rerun;
        }
        seen.held = Some(Hold { name, lease_until: now.after(self.setting.lease().length()) });
    }

    /// A row was deleted. What was over then is over, even if the clock steps back.
    pub(super) fn observe_purge(&self, state: &mut State) {
        let (now, seen) = (state.now, &mut state.seen);
        seen.sights.purged = true;
        let tombstone = ticks(self.setting.tombstone);
        if seen.held.is_some_and(|held| now >= held.lease_until.after(tombstone)) {
            seen.held = None;
            seen.next_life();
        }
        if seen.done_until.is_some_and(|until| now >= until) {
            seen.done_until = None;
            seen.next_life();
        }
    }

    fn settled_by(&self, state: &mut State, op: Op, own: Own) {
        let (now, seen) = (state.now, &mut state.seen);
        let tombstone = ticks(self.setting.tombstone);
        let held = seen.held.filter(|held| held.name == own.name && now < held.lease_until.after(tombstone));
        seen.wrong.stranger_settled |= held.is_none();
        match op {
            Op::Renew(_) => {
                seen.wrong.stranger_settled |= held.is_some_and(|held| now >= held.lease_until);
                let until = now.after(self.setting.lease().length());
                seen.held = held.map(|held| Hold { lease_until: held.lease_until.max(until), ..held });
            }
            Op::Complete(_) => {
                seen.held = None;
                seen.done_until = Some(now.after(tombstone));
            }
            Op::Release(_) => seen.held = None,
            _ => {}
        }
    }
}
