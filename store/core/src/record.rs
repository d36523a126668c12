//! What a store keeps of one key, and how its state is judged.

use std::time::Duration;

use crate::{
    AgeLimit, Entry, FencingToken, Fingerprint, KeyClass, Life, Nonce, Outcome, RecordId, Recovery, Timestamp,
};

/// How long a row outlives its own token, so that no two grants share one while the store's clock
/// steps back by less than this in total (`D` in the protocol).
pub const TOKEN_HOLD: Duration = Duration::from_secs(3600);

/// Everything a store keeps of one key, in whatever form. All decisions about it are in
/// [`protocol`](crate::protocol); a store only reads it and writes it back, atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What duplicates must repeat.
    pub fingerprint: Fingerprint,
    /// The nonce of the last grant, or a fresh one after a resolution.
    pub nonce: Nonce,
    /// The token of the last grant; none on the stub that an abandon leaves.
    pub token: Option<FencingToken>,
    /// The number of the last attempt.
    pub attempt: u32,
    /// Settings of the first claim of this life; none on the stub that an abandon leaves.
    pub life: Option<Life>,
    /// When a time-ordered key says it was made.
    pub key_time: Option<Timestamp>,
    /// When the last lease ends or ended.
    pub lease_until: Timestamp,
    /// What was last written.
    pub stored: Stored,
    /// Since when it is `stored` so: claimed, completed, in doubt, released at.
    pub since: Timestamp,
    /// Nonces whose claims are refused.
    pub dead: DeadNonces,
    /// Who resolved it and why.
    pub resolution: Option<(String, String)>,
}

/// The state as last written. Time may have moved it on: see [`Record::standing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Claimed.
    InFlight,
    /// Completed; a tombstone when the payload is gone or the response window is over.
    Completed(Outcome),
    /// Nobody knows; with the answer that was sent, if one was.
    InDoubt(Option<Outcome>),
    /// Free again.
    Released,
}

/// The states that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Claimed, no outcome yet.
    InFlight,
    /// Completed, outcome kept.
    Completed,
    /// Completed, outcome no longer kept.
    Tombstone,
    /// An attempt ended and nobody knows whether its effect happened.
    InDoubt,
    /// Free; kept for its token and its dead nonces.
    Released,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::InFlight, Self::Completed, Self::Tombstone, Self::InDoubt, Self::Released];

    /// The name used in listings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in-flight",
            Self::Completed => "completed",
            Self::Tombstone => "tombstone",
            Self::InDoubt => "in-doubt",
            Self::Released => "released",
        }
    }
}

/// A record's state at one moment: what was stored and what time made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'r> {
    /// Its life is over; only token and dead nonces still count.
    Absent {
        /// It was in doubt when it was forgotten.
        was_in_doubt: bool,
    },
    /// Claimed, the lease runs.
    InFlight {
        /// Until it ends.
        lease_left: Duration,
    },
    /// Claimed under [`Recovery::Rerun`], the lease is over: a claim takes over.
    LeaseEnded,
    /// Completed, the outcome is kept.
    Completed {
        /// The outcome.
        outcome: &'r Outcome,
        /// For how long.
        time_left: Duration,
    },
    /// Completed, the outcome is not kept.
    Tombstone {
        /// What is left of it.
        outcome: &'r Outcome,
    },
    /// Nobody knows.
    InDoubt {
        /// Since when.
        since: Timestamp,
        /// The answer that was sent.
        response: Option<&'r Outcome>,
    },
    /// Free.
    Released,
}

impl Record {
    /// The state at `now`. An end that is reached is over: a lease until 10 has ended at 10.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing<'_> {
        match &self.stored {
            Stored::Released => Standing::Released,
            Stored::InFlight if now < self.lease_until => {
                Standing::InFlight { lease_left: self.lease_until.since(now) }
            }
            Stored::InFlight if self.recovery() == Recovery::Rerun => Standing::LeaseEnded,
            Stored::InFlight => self.in_doubt(now, self.lease_until, None),
            Stored::InDoubt(response) => self.in_doubt(now, self.since, response.as_ref()),
            Stored::Completed(outcome) => {
                if now >= self.state_end() {
                    return Standing::Absent { was_in_doubt: false };
                }
                let until = self.response_until();
                if outcome.payload().is_some() && now < until {
                    Standing::Completed { outcome, time_left: until.since(now) }
                } else {
                    Standing::Tombstone { outcome }
                }
            }
        }
    }

    fn in_doubt<'r>(&self, now: Timestamp, since: Timestamp, response: Option<&'r Outcome>) -> Standing<'r> {
        if now >= self.state_end() {
            Standing::Absent { was_in_doubt: true }
        } else {
            Standing::InDoubt { since, response }
        }
    }

    /// The state that people see at `now`; none when the record's life is over.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> Option<State> {
        match self.standing(now) {
            Standing::Absent { .. } => None,
            Standing::InFlight { .. } | Standing::LeaseEnded => Some(State::InFlight),
            Standing::Completed { .. } => Some(State::Completed),
            Standing::Tombstone { .. } => Some(State::Tombstone),
            Standing::InDoubt { .. } => Some(State::InDoubt),
            Standing::Released => Some(State::Released),
        }
    }

    /// What an operator sees at `now`; none when the record's life is over.
    #[must_use]
    pub fn entry(&self, id: RecordId, now: Timestamp) -> Option<Entry> {
        let state = self.state(now)?;
        let since = match self.standing(now) {
            Standing::InDoubt { since, .. } => since,
            _ => self.since,
        };
        let status = match &self.stored {
            Stored::Completed(outcome) | Stored::InDoubt(Some(outcome)) => Some(outcome.status()),
            _ => None,
        };
        Some(Entry {
            id,
            state,
            token: self.token,
            attempt: self.attempt,
            age: now.since(since),
            status,
            resolution: self.resolution.clone(),
        })
    }

    /// What becomes of an attempt without a known outcome.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.life.as_ref().map_or(Recovery::Hold, Life::recovery)
    }

    /// When a completed record's outcome is no longer kept.
    #[must_use]
    pub fn response_until(&self) -> Timestamp {
        self.since.after(self.life.as_ref().map_or(Duration::ZERO, |l| l.windows().response()))
    }

    /// When the stored state ends by itself. An attempt in flight does not end by a window; for the
    /// purge of one that nobody came back for, and for one in doubt, this is a tombstone window after its lease.
    #[must_use]
    pub fn state_end(&self) -> Timestamp {
        let Some(life) = &self.life else { return Timestamp::MIN };
        let tombstone = life.windows().tombstone();
        let end = match &self.stored {
            Stored::Released => return Timestamp::MIN,
            Stored::Completed(_) => self.since.after(tombstone),
            Stored::InDoubt(_) | Stored::InFlight => self.lease_until.after(tombstone),
        };
        self.key_kept_until().map_or(end, |kept| kept.max(end))
    }

    fn key_kept_until(&self) -> Option<Timestamp> {
        let age: &AgeLimit = self.life.as_ref()?.age()?;
        Some(age.kept_until(self.key_time?))
    }

    /// The class whose floor the purge of this record raises, and to what: its key's time. None for opaque
    /// keys and for a released record, which forgets nothing that was run.
    #[must_use]
    pub fn floor(&self) -> Option<(&KeyClass, Timestamp)> {
        let age = self.life.as_ref()?.age()?;
        let key_time = self.key_time?;
        (self.stored != Stored::Released).then_some((&age.class, key_time))
    }

    /// The row may be deleted strictly after this: its state's end, its token's hold ([`TOKEN_HOLD`]) and its dead nonces.
    #[must_use]
    pub fn kept_until(&self) -> Timestamp {
        self.kept_until_holding(TOKEN_HOLD)
    }

    /// The same with another hold of the token, for a store whose clock cannot step back so far.
    #[must_use]
    pub fn kept_until_holding(&self, hold: Duration) -> Timestamp {
        let token = self
            .token
            .map_or(Timestamp::MIN, |t| Timestamp::from_micros(i64::try_from(t.get()).unwrap_or(i64::MAX)).after(hold));
        self.state_end().max(token).max(self.dead.until())
    }

    /// Until when steps keep a released record: a tombstone window after its release. Other states keep theirs as long as they last.
    #[must_use]
    pub fn steps_kept_until(&self) -> Timestamp {
        match (&self.stored, &self.life) {
            (Stored::Released, Some(life)) => self.since.after(life.windows().tombstone()),
            _ => Timestamp::MIN,
        }
    }

    /// Whether its steps still count at `now`. When they do not, whoever claims the key anew begins without them.
    #[must_use]
    pub fn keeps_steps(&self, now: Timestamp) -> bool {
        match self.standing(now) {
            Standing::Absent { .. } => false,
            Standing::Released => now <= self.steps_kept_until(),
            _ => true,
        }
    }

    /// When a sweep has something to do here: drop the payload, or delete the row.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        self.due_holding(TOKEN_HOLD)
    }

    /// The same with another hold of the token.
    #[must_use]
    pub fn due_holding(&self, hold: Duration) -> Timestamp {
        let gone = self.kept_until_holding(hold).after(Duration::from_micros(1));
        match &self.stored {
            Stored::Completed(outcome) if outcome.payload().is_some() => self.response_until().min(gone),
            _ => gone,
        }
    }

    /// Whether this holder is the record's.
    #[must_use]
    pub fn is_held_by(&self, token: FencingToken, nonce: Nonce) -> bool {
        self.token == Some(token) && self.nonce == nonce
    }
}

/// How many dead nonces a record or a lease remembers: 24 KB. Beyond that, in a storm of claims given up, the oldest are forgotten; a
/// late copy of one of those can then hold the key for one lease, for nobody.
const MOST_DEAD: usize = 1000;

/// Nonces whose claims are refused, each until a time: a late copy of an abandoned claim must find
/// nothing to grant. The list survives the record's later states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadNonces(Vec<(Nonce, Timestamp)>);

impl DeadNonces {
    const ENTRY: usize = 24;

    /// Whether this nonce is dead at `now`.
    #[must_use]
    pub fn contains(&self, nonce: Nonce, now: Timestamp) -> bool {
        self.0.iter().any(|(dead, until)| *dead == nonce && now <= *until)
    }

    /// Adds a nonce, and forgets those whose time is past, and all but the newest 1000.
    pub fn add(&mut self, nonce: Nonce, until: Timestamp, now: Timestamp) {
        self.0.retain(|(dead, until)| *dead != nonce && now <= *until);
        self.0.push((nonce, until));
        self.0.drain(..self.0.len().saturating_sub(MOST_DEAD));
    }

    /// When the last of them may be forgotten.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.0.iter().map(|(_, until)| *until).max().unwrap_or(Timestamp::MIN)
    }

    /// As bytes: for each, the nonce's 16 and the time's 8, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * Self::ENTRY);
        for (nonce, until) in &self.0 {
            bytes.extend_from_slice(nonce.as_bytes());
            bytes.extend_from_slice(&until.micros().to_be_bytes());
        }
        bytes
    }

    /// From [`DeadNonces::to_bytes`]; none when the length is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let chunks = bytes.chunks_exact(Self::ENTRY);
        if !chunks.remainder().is_empty() {
            return None;
        }
        let entry = |chunk: &[u8]| {
            let (nonce, until) = chunk.split_at(16);
            let until = i64::from_be_bytes(until.try_into().ok()?);
            Some((Nonce::from_bytes(nonce.try_into().ok()?), Timestamp::from_micros(until)))
        };
        chunks.map(entry).collect::<Option<Vec<_>>>().map(Self)
    }
}
