//! A state: the store's row and clock, the clients, what is on its way, and what an observer outside knows.

use std::hash::{Hash, Hasher};

use idempotency::{FencingToken, Record, Recovery, Stored, Timestamp};

use super::message::{Message, Name, Own};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The store's clock.
    pub now: Timestamp,
    /// What the store keeps.
    pub row: Row,
    /// The clients, each in a process of its own.
    pub clients: Vec<Client>,
    /// What is on its way, sorted.
    pub network: Vec<Message>,
    /// A sweeper has seen a row that is over, and has not deleted it yet.
    pub sweeping: bool,
    /// The operator's fence token, once the fence was opened with it.
    pub opened: Option<FencingToken>,
    /// The fence of what the attempts write to: the newest token that reached it, and whose it was.
    pub fence: Option<(FencingToken, Option<Name>)>,
    /// What may still go wrong.
    pub budget: Budget,
    /// What an observer outside knows.
    pub seen: Seen,
}

/// The record, if there is a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub Option<Record>);

impl Hash for Row {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Some(record) = &self.0 else { return state.write_u8(0) };
        state.write_u8(1);
        let stored = match &record.stored {
            Stored::InFlight => (0, None),
            Stored::Completed(outcome) => (1, super::message::told(outcome)),
            Stored::InDoubt(_) => (2, None),
            Stored::Released => (3, None),
        };
        let life = record.life.as_ref().map(|life| life.recovery() == Recovery::Hold);
        (record.fingerprint, record.nonce, record.token, record.attempt, life, stored).hash(state);
        (record.lease_until, record.since, record.dead.to_bytes()).hash(state);
    }
}

/// One client: a process with an engine, and requests to be made one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// Where it is.
    pub phase: Phase,
    /// How many requests it will still make.
    pub requests: u8,
    /// How many nonces it has made.
    pub nonces: u8,
}

/// Where a client is, named after the engine's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between requests.
    Idle,
    /// In `Engine::ask`; the answer may have been lost.
    Asking {
        /// Under this nonce.
        name: Name,
        /// The answer will not come.
        lost: bool,
        /// It was asked before, on a connection that broke.
        again: bool,
    },
    /// In `Engine::claim`, waiting until another attempt ends.
    Waiting {
        /// Under this nonce.
        name: Name,
        /// It was asked before, on a connection that broke.
        again: bool,
    },
    /// In `Engine::abandon_and_rename`.
    Renaming {
        /// The nonce that is given up.
        name: Name,
        /// The answer will not come.
        lost: bool,
    },
    /// Runs.
    Running(Attempt),
    /// In `settle_once`.
    Settling {
        /// What is settled.
        attempt: Attempt,
        /// How.
        settlement: Settlement,
        /// The answer will not come.
        lost: bool,
    },
    /// In `Engine::look`.
    Looking {
        /// Under this nonce.
        name: Name,
        /// The answer will not come.
        lost: bool,
    },
    /// Its process was killed.
    Crashed,
}

/// An attempt as its process knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// What it names.
    pub own: Own,
    /// What becomes of it without a known outcome.
    pub recovery: bool,
    /// Which life of the record it began in, as the observer counts.
    pub life: u8,
    /// Its effect has happened.
    pub effect: bool,
}

impl Attempt {
    /// As the core has it.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        if self.recovery { Recovery::Rerun } else { Recovery::Hold }
    }
}

/// How an attempt is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the core's")]
pub enum Settlement {
    Complete,
    Release,
    InDoubt,
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The clock goes on by a tick.
    pub ticks: u8,
    /// It steps back by one.
    pub back: u8,
    /// An answer is lost, or a message is so late that nobody waits for its answer any more.
    pub losses: u8,
    /// A message arrives twice.
    pub copies: u8,
    /// A process is killed.
    pub crashes: u8,
    /// An operator resolves.
    pub resolutions: u8,
    /// A sweeper looks.
    pub sweeps: u8,
    /// A lease is renewed.
    pub renewals: u8,
}

/// What an observer knows who sees everything, by which the store and the clients are judged. It uses nothing of the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The record's life, counted from 0.
    pub life: u8,
    /// The latest that the clock showed before it stepped back.
    pub latest: Option<Timestamp>,
    /// How many effects each life has had under Hold.
    pub effects: [u8; 4],
    /// The largest token granted.
    pub token: u64,
    /// The claim that is held.
    pub held: Option<Hold>,
    /// Until when, on the store's clock, nobody may be granted because it was done.
    pub done_until: Option<Timestamp>,
    /// The recovery of the life's first claim.
    pub rerun: bool,
    /// The answer that clients were given in each life.
    pub answers: [Option<u8>; 4],
    /// The nonces whose attempts ran.
    pub ran: u32,
    /// Somebody was killed.
    pub crashed: bool,
    /// What went wrong.
    pub wrong: Wrong,
    /// What should be seen now and then.
    pub sights: Sights,
}

impl Seen {
    /// The record's next life. Walks are longer than anybody counts.
    pub(super) fn next_life(&mut self) {
        self.life = (self.life + 1).min(3);
    }
}

/// A claim as the observer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Whose it is.
    pub name: Name,
    /// When its lease ends.
    pub lease_until: Timestamp,
}

/// What must never be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// A token that is not above all before.
    pub token: bool,
    /// Two attempts hold the claim.
    pub two_holders: bool,
    /// A grant although it was done and remembered.
    pub granted_after_done: bool,
    /// Somebody settled who does not hold the claim.
    pub stranger_settled: bool,
    /// Somebody who was told to be superseded changed something.
    pub superseded_changed: bool,
    /// Clients were given different answers.
    pub two_answers: bool,
    /// A client was given the answer to another request.
    pub others_answer: bool,
    /// The effect of whoever holds the claim was refused by the fence.
    pub holder_fenced: bool,
}

/// What must be seen now and then, or the model tests nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sights {
    /// A completion was superseded.
    pub superseded: bool,
    /// A late copy of a claim was refused.
    pub refused: bool,
    /// A claim was granted again to its own nonce.
    pub again: bool,
    /// An attempt was taken over.
    pub takeover: bool,
    /// A replay.
    pub replay: bool,
    /// A record was resolved.
    pub resolved: bool,
    /// A row was deleted.
    pub purged: bool,
}
