//! Model 2: leases that yield tokens, and a fence in the database that their holders read and write.
//!
//! The lock store is the core's [`lease_protocol`](idempotency::lease_protocol) over one row, which is flushed, or falls back to an older copy at a failover; its
//! clock steps back. The fence is the stores' SQL in words: a token is let in that is newer than the newest before, or is the same
//! of the same holder. Each holder opens the fence, reads a number, and writes it back with one added, in a transaction each; between any two
//! of them it may stand still for as long as it likes. The database may fail over to an older copy of itself.

use std::hash::{Hash, Hasher};

use idempotency::{
    Acquired, Ask, FencingToken, Lease, LeaseGrant, LeaseHolder, LeaseRecord, Nonce, Resource, Timestamp,
    lease_protocol as protocol,
};
use stateright::{Model, Property};

use crate::ticks::{ORIGIN, TICK, ticks};

/// The model, in one of its settings, with or without one of its rules.
#[derive(Clone, Debug)]
pub struct Leases {
    /// What may happen.
    pub setting: Setting,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

/// What may happen how often.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// How often each client takes the lease.
    pub rounds: u8,
    /// How often what may go wrong.
    pub budget: Budget,
    /// The fence makes its own tokens, when it is opened.
    pub minted: bool,
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    ticks: u8,
    back: u8,
    renewals: u8,
    flushes: u8,
    failovers: u8,
    database_failovers: u8,
}

impl Setting {
    /// Leases end while their holders stand still.
    pub const PAUSES: Self = Self {
        name: "pauses",
        rounds: 1,
        budget: Budget { ticks: 3, back: 0, renewals: 1, flushes: 0, failovers: 0, database_failovers: 0 },
        minted: false,
    };
    /// The lock store loses all or some of what it acknowledged, and its clock steps back.
    pub const LOST_LOCKS: Self = Self {
        name: "flush and failover of the lock store",
        rounds: 1,
        budget: Budget { ticks: 1, back: 1, renewals: 0, flushes: 1, failovers: 1, database_failovers: 0 },
        minted: false,
    };
    /// The lock store is flushed, and tokens are the database's own.
    pub const MINTED: Self = Self {
        name: "flush, tokens of the database",
        minted: true,
        budget: Budget { ticks: 2, back: 0, renewals: 0, flushes: 1, failovers: 0, database_failovers: 0 },
        ..Self::LOST_LOCKS
    };
    /// The database loses some of what it acknowledged.
    pub const LOST_WRITES: Self = Self {
        name: "failover of the database",
        rounds: 1,
        budget: Budget { ticks: 2, back: 0, renewals: 0, flushes: 0, failovers: 0, database_failovers: 1 },
        minted: false,
    };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::PAUSES, Self::LOST_LOCKS, Self::MINTED, Self::LOST_WRITES];
}

/// A rule that the model can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The fence is opened before anything is read; a token counts as newer when it is larger.
    OpenedFirst,
    /// The same, and the same token may come again.
    OpenedFirstSameToken,
    /// The same token is let in of the same holder only.
    HolderCompared,
    /// What is read and written belongs to the line of the database's life in which the fence was opened.
    TimelineCompared,
    /// Whoever holds the lease and is refused gets a token above the fence's.
    Healed,
    /// A fence is never set back: it is the lease that gets a token above it.
    FenceNeverLowered,
    /// The token is looked at in the transaction that writes.
    LookedInsideTransaction,
}

impl Dropped {
    /// Every rule, and the setting in which it is missed.
    pub const ALL: [(Self, Setting); 7] = [
        (Self::OpenedFirst, Setting::PAUSES),
        (Self::OpenedFirstSameToken, Setting::PAUSES),
        (Self::HolderCompared, Setting::LOST_LOCKS),
        (Self::TimelineCompared, Setting::LOST_WRITES),
        (Self::Healed, Setting::LOST_LOCKS),
        (Self::FenceNeverLowered, Setting::LOST_LOCKS),
        (Self::LookedInsideTransaction, Setting::PAUSES),
    ];
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: Timestamp,
    lock: Lock,
    lock_copy: Lock,
    database: Database,
    database_copy: Database,
    clients: [Client; CLIENTS],
    budget: Budget,
    /// The fence let in an older token after a newer one, or one token of two holders.
    out_of_order: bool,
    /// Two holders of the lock store's lease at once, as each of them believed.
    overlap: bool,
    superseded: bool,
    healed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lock(Option<LeaseRecord>);

impl Hash for Lock {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.is_some().hash(state);
        if let Some(record) = &self.0 {
            (record.token, record.holder, record.lease_until, record.dead.to_bytes()).hash(state);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Database {
    timeline: u8,
    fence: Option<(FencingToken, u8)>,
    number: u8,
    /// How often the number was written, which the observer counts.
    writes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client {
    rounds: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Held(Holder),
    Opened(Holder),
    Read(Holder, u8),
    /// Looked at the fence and found itself let in, some time ago.
    Looked(Holder, u8),
    Wrote(Holder),
    /// Holds the lease and is let in nowhere.
    Bricked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    token: FencingToken,
    name: u8,
    timeline: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what happens; a number is a client's")]
pub enum Action {
    Tick,
    StepBack,
    Flush,
    CopyLock,
    FailOver,
    CopyDatabase,
    FailDatabaseOver,
    Take(u8),
    Renew(u8),
    Open(u8),
    Read(u8),
    Look(u8),
    Write(u8),
    Release(u8),
}

const CLIENTS: usize = 3;

impl Leases {
    fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }

    fn opens(&self) -> bool {
        !self.lacks(Dropped::OpenedFirst) && !self.lacks(Dropped::OpenedFirstSameToken)
    }

    /// The first statement of every fenced transaction.
    fn admit(&self, state: &mut State, holder: Holder, writes: bool) -> bool {
        let database = &mut state.database;
        if !self.lacks(Dropped::TimelineCompared) && database.timeline != holder.timeline {
            return false;
        }
        let own = (holder.token, holder.name);
        let same = |fence: (FencingToken, u8)| match self.dropped {
            Some(Dropped::OpenedFirst) => false,
            Some(Dropped::HolderCompared | Dropped::OpenedFirstSameToken) => fence.0 == own.0,
            _ => fence == own,
        };
        let admitted = database.fence.is_none_or(|fence| own.0 > fence.0 || same(fence));
        if admitted && writes {
            state.out_of_order |=
                database.fence.is_some_and(|fence| own.0 < fence.0 || own.0 == fence.0 && own != fence);
            database.fence = Some(own);
        }
        admitted
    }

    fn open(&self, state: &mut State, holder: Holder) -> Phase {
        let holder = Holder { timeline: state.database.timeline, ..holder };
        if self.setting.minted {
            let previous = state.database.fence.map(|(token, _)| token);
            let token = FencingToken::after(previous, Timestamp::MIN);
            state.database.fence = Some((token, holder.name));
            return Phase::Opened(Holder { token, ..holder });
        }
        if self.admit(state, holder, true) {
            return Phase::Opened(holder);
        }
        // Refused. Does the lock store still know it as the holder?
        let lives = |record: &LeaseRecord| {
            record.is_held_by(holder.token, nonce(holder.name)) && record.lease_left(state.now).is_some()
        };
        if !state.lock.0.as_ref().is_some_and(lives) {
            state.superseded = true;
            return Phase::Idle;
        }
        if self.lacks(Dropped::Healed) {
            return Phase::Bricked;
        }
        if self.lacks(Dropped::FenceNeverLowered) {
            state.database.fence = Some((holder.token, holder.name));
            return Phase::Opened(holder);
        }
        let above = state.database.fence.map(|(token, _)| token);
        match take(&mut state.lock, holder.name, above, state.now) {
            Some(grant) => {
                state.healed = true;
                let holder = Holder { token: grant.token, ..holder };
                if self.admit(state, holder, true) { Phase::Opened(holder) } else { Phase::Bricked }
            }
            None => Phase::Bricked,
        }
    }

    fn steps_of(&self, client: &Client, number: u8, actions: &mut Vec<Action>) {
        let inside = !self.lacks(Dropped::LookedInsideTransaction);
        match client.phase {
            Phase::Idle if client.rounds > 0 => actions.push(Action::Take(number)),
            Phase::Idle | Phase::Bricked => {}
            Phase::Held(_) if self.opens() => actions.push(Action::Open(number)),
            Phase::Held(_) | Phase::Opened(_) => actions.push(Action::Read(number)),
            Phase::Read(..) => actions.push(if inside { Action::Write(number) } else { Action::Look(number) }),
            Phase::Looked(..) => actions.push(Action::Write(number)),
            Phase::Wrote(_) => actions.push(Action::Release(number)),
        }
    }
}

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: ORIGIN,
            lock: Lock(None),
            lock_copy: Lock(None),
            database: Database::default(),
            database_copy: Database::default(),
            clients: [Client { rounds: self.setting.rounds, phase: Phase::Idle }; CLIENTS],
            budget: self.setting.budget,
            out_of_order: false,
            overlap: false,
            superseded: false,
            healed: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (number, client) in (0..).zip(&state.clients) {
            self.steps_of(client, number, actions);
            if state.budget.renewals > 0 && matches!(client.phase, Phase::Held(_) | Phase::Opened(_) | Phase::Read(..))
            {
                actions.push(Action::Renew(number));
            }
        }
        let budget = &state.budget;
        let mut may = |left: u8, action: Action| {
            if left > 0 {
                actions.push(action);
            }
        };
        may(budget.ticks, Action::Tick);
        may(budget.back, Action::StepBack);
        may(budget.flushes, Action::Flush);
        may(budget.failovers * u8::from(state.lock_copy.0.is_none() && state.lock.0.is_some()), Action::CopyLock);
        may(budget.failovers, Action::FailOver);
        may(budget.database_failovers * u8::from(state.database_copy == Database::default()), Action::CopyDatabase);
        may(budget.database_failovers, Action::FailDatabaseOver);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let phase = |number: u8| last.clients[usize::from(number)].phase;
        match action {
            Action::Tick => {
                state.budget.ticks -= 1;
                state.now = state.now.after(TICK);
            }
            Action::StepBack => {
                state.budget.back -= 1;
                state.now = state.now.before(TICK);
            }
            Action::Flush => {
                state.budget.flushes -= 1;
                state.lock = Lock(None);
            }
            Action::CopyLock => state.lock_copy = state.lock.clone(),
            Action::FailOver => {
                state.budget.failovers -= 1;
                state.lock = state.lock_copy.clone();
            }
            Action::CopyDatabase => state.database_copy = state.database,
            Action::FailDatabaseOver => {
                state.budget.database_failovers -= 1;
                state.database = Database { timeline: last.database.timeline + 1, ..state.database_copy };
            }
            Action::Take(number) => {
                let client = &mut state.clients[usize::from(number)];
                client.rounds -= 1;
                let name = number * 4 + client.rounds + 1;
                let grant = take(&mut state.lock, name, None, state.now)?;
                let held =
                    |client: &Client| matches!(client.phase, Phase::Held(_) | Phase::Opened(_) | Phase::Read(..));
                state.overlap |= last.clients.iter().any(held);
                let holder = Holder { token: grant.token, name, timeline: state.database.timeline };
                state.clients[usize::from(number)].phase = Phase::Held(holder);
            }
            Action::Renew(number) => {
                let (Phase::Held(holder) | Phase::Opened(holder) | Phase::Read(holder, _)) = phase(number) else {
                    return None;
                };
                state.budget.renewals -= 1;
                // A loss is heard and not believed in time: the fence is what counts.
                let _ = protocol::renew(state.lock.0.as_mut(), &holder.named(), lease(), state.now);
            }
            Action::Open(number) => {
                let Phase::Held(holder) = phase(number) else { return None };
                state.clients[usize::from(number)].phase = self.open(&mut state, holder);
            }
            Action::Read(number) => {
                let (Phase::Held(holder) | Phase::Opened(holder)) = phase(number) else { return None };
                let admitted = !self.opens() || self.admit(&mut state, holder, false);
                let number_read = state.database.number;
                state.superseded |= !admitted;
                state.clients[usize::from(number)].phase =
                    if admitted { Phase::Read(holder, number_read) } else { Phase::Idle };
            }
            Action::Look(number) => {
                let Phase::Read(holder, read) = phase(number) else { return None };
                let admitted = self.admit(&mut state, holder, false);
                state.clients[usize::from(number)].phase =
                    if admitted { Phase::Looked(holder, read) } else { Phase::Idle };
            }
            Action::Write(number) => {
                let (admitted, holder, read) = match phase(number) {
                    Phase::Read(holder, read) => (self.admit(&mut state, holder, true), holder, read),
                    Phase::Looked(holder, read) => (true, holder, read),
                    _ => return None,
                };
                if admitted {
                    state.database.number = read + 1;
                    state.database.writes += 1;
                }
                state.superseded |= !admitted;
                state.clients[usize::from(number)].phase = if admitted { Phase::Wrote(holder) } else { Phase::Idle };
            }
            Action::Release(number) => {
                let Phase::Wrote(holder) = phase(number) else { return None };
                let _ = protocol::release(state.lock.0.as_mut(), &holder.named(), ticks(8), state.now);
                state.clients[usize::from(number)].phase = Phase::Idle;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let sometimes = |name, seen: fn(&Self, &State) -> bool| Property::sometimes(name, seen);
        let mut properties = vec![
            sometimes("overlapping holders", |_, state| state.overlap),
            sometimes("a superseded holder", |_, state| state.superseded),
        ];
        if self.setting.name == Setting::LOST_LOCKS.name {
            properties.push(sometimes("a token that was healed", |_, state| state.healed));
        }
        let always = |name, holds: fn(&Self, &State) -> bool| Property::always(name, holds);
        properties.extend([
            always("no update is lost", |_, state| state.database.number == state.database.writes),
            always("the fence lets nobody in out of order", |_, state| !state.out_of_order),
            always("whoever holds the lease is let in", |_, state| {
                !state.clients.iter().any(|client| client.phase == Phase::Bricked)
            }),
        ]);
        properties
    }
}

impl Holder {
    fn named(self) -> LeaseHolder {
        LeaseHolder { resource: resource(), token: self.token, nonce: nonce(self.name) }
    }
}

fn take(lock: &mut Lock, name: u8, above: Option<FencingToken>, now: Timestamp) -> Option<LeaseGrant> {
    let ask = Ask { resource: resource(), nonce: nonce(name), lease: lease(), above };
    let (acquired, write) = protocol::acquire(lock.0.as_ref(), &ask, now).ok()?;
    if write.is_some() {
        lock.0 = write;
    }
    match acquired {
        Acquired::Granted(grant) => Some(grant),
        _ => None,
    }
}

fn nonce(name: u8) -> Nonce {
    Nonce::from_bytes([name; 16])
}

fn lease() -> Lease {
    // A tick is long enough for a lease.
    Lease::new(TICK).unwrap_or_default()
}

#[expect(clippy::unwrap_used, reason = "a short word is a resource")]
fn resource() -> Resource {
    Resource::parse("r").unwrap()
}
