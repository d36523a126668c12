//! What happened in a run, event by event.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Which route a key is for, and so what holds of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `/charge` where an attempt that may have had its effect never runs again.
    Hold,
    /// `/charge` where it does.
    Rerun,
    /// `/tx-charge`: effect and outcome in one transaction.
    Transaction,
    /// `/counter`: under a lease that the testbed takes.
    Counter,
    /// `/fenced`: under a lease that the client holds.
    Fenced,
}

impl Kind {
    /// Whether each key has at most one effect whatever becomes of its record: a transaction or a marker beside the effect sees to it.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Transaction | Self::Counter | Self::Fenced)
    }
}

/// A request that was sent. Times are microseconds since 1970, of a clock that never steps during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its number.
    pub n: u64,
    /// When.
    pub at: u64,
    /// Under which key.
    pub key: String,
    /// To which route.
    pub kind: Kind,
    /// Of a counter, which.
    pub resource: Option<String>,
    /// What is asked for.
    pub amount: i64,
    /// The fencing token that the client presents.
    pub token: Option<u64>,
    /// To which testbed.
    pub testbed: usize,
    /// Whether the key was acknowledged for another amount before: this must be refused.
    pub reused: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// To which request.
    pub n: u64,
    /// When.
    pub at: u64,
    /// Its status.
    pub status: u16,
    /// The last segment of the problem's type, if it is a problem.
    pub problem: Option<String>,
    /// A hash of its body.
    pub body: String,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
    /// Whether it says that it comes from a record.
    pub replayed: bool,
    /// A charge's effect.
    pub id: Option<i64>,
    /// What a counter shows.
    pub value: Option<i64>,
    /// The token under which a counter was written.
    pub token: Option<u64>,
    /// The token that superseded this one.
    pub current_token: Option<u64>,
}

impl Answered {
    /// Whether it acknowledges the effect.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether it is this problem.
    #[must_use]
    pub fn is(&self, problem: &str) -> bool {
        self.problem.as_deref() == Some(problem)
    }

    /// Whether the client asks no more: it was done, or nobody knows and nobody will.
    #[must_use]
    pub fn is_final(&self, kind: Kind) -> bool {
        self.is_success() || kind == Kind::Hold && (self.is("outcome-unknown") || self.is("ledger-failed"))
    }
}

/// An effect, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the columns of the ledger")]
pub struct Effect {
    pub seq: i64,
    pub key: Option<String>,
    pub route: String,
    pub resource: Option<String>,
    pub amount: i64,
    pub token: Option<u64>,
    pub attempt: Option<u32>,
    pub process: u32,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// Something bad that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Struck {
    /// From when.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// To whom, such as `testbed 2`.
    pub whom: String,
    /// What, such as `pause`.
    pub what: String,
    /// Whether the store forgets what it acknowledged.
    pub forgets: bool,
    /// By how many microseconds the store's clock is ahead; behind, if less than zero.
    #[serde(default)]
    pub ahead: i64,
}

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// What this is a history of, to run it again.
    Run {
        /// The command's arguments.
        arguments: String,
    },
    /// A request.
    Sent(Sent),
    /// An answer.
    Answered(Answered),
    /// A request ended without a whole answer.
    Unanswered {
        /// Which.
        n: u64,
        /// When.
        at: u64,
    },
    /// The client took the lease of a counter: every older holder's has ended.
    Granted {
        /// When.
        at: u64,
        /// Of which.
        resource: String,
        /// Under which token.
        token: u64,
    },
    /// A fault, when it is over.
    Struck(Struck),
    /// All faults are over: every process is up and every link whole.
    Calm {
        /// Since when.
        at: u64,
    },
    /// An effect, in the order of the ledger.
    Effect(Effect),
    /// What a counter shows in the end.
    Counter {
        /// Which.
        resource: String,
        /// What.
        value: i64,
        /// Under which token it was written last.
        token: Option<u64>,
    },
    /// How many transactions stood open in the end, when nobody was at work.
    OpenTransactions {
        /// Transactions.
        count: u64,
    },
}

/// Takes down what happens, in memory and, if there is a folder, in its file `history.jsonl`.
#[derive(Debug)]
pub(super) struct Recorder {
    started: Instant,
    started_at: u64,
    numbers: AtomicU64,
    events: Mutex<(Vec<Event>, Option<BufWriter<File>>)>,
}

impl Recorder {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        let file = folder.map(|folder| {
            std::fs::create_dir_all(folder).expect("a folder for the history");
            BufWriter::new(File::create(folder.join("history.jsonl")).expect("a file for the history"))
        });
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
            numbers: AtomicU64::new(0),
            events: Mutex::new((Vec::new(), file)),
        }
    }

    /// Microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.started_at + u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The number of a request.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut events.1 {
            serde_json::to_writer(&mut *file, &event).expect("a line of the history");
            file.write_all(b"\n").expect("a line of the history");
        }
        events.0.push(event);
    }

    /// All of it, which is on disk as well.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut events.1 {
            file.flush().expect("a history on disk");
        }
        events.0.clone()
    }
}

/// A request and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'h> {
    /// The request.
    pub sent: &'h Sent,
    /// Its answer, if it was answered.
    pub answered: Option<&'h Answered>,
}

/// What was done under one key.
#[derive(Clone, Debug, Default)]
pub struct OfKey<'h> {
    /// Its requests, in order of sending.
    pub exchanges: Vec<Exchange<'h>>,
    /// Its effects, in the order of the ledger.
    pub effects: Vec<&'h Effect>,
}

impl<'h> OfKey<'h> {
    /// The first request.
    #[must_use]
    pub fn first(&self) -> Option<&'h Sent> {
        self.exchanges.first().map(|exchange| exchange.sent)
    }

    /// The answers to requests that mean what the first one meant.
    pub fn answers(&self) -> impl Iterator<Item = (&'h Sent, &'h Answered)> + '_ {
        let genuine = self.exchanges.iter().filter(|exchange| !exchange.sent.reused);
        genuine.filter_map(|exchange| Some((exchange.sent, exchange.answered?)))
    }
}

/// A history, sorted for questions.
#[derive(Clone, Debug, Default)]
pub struct History<'h> {
    /// By key.
    pub keys: BTreeMap<&'h str, OfKey<'h>>,
    /// All effects, in the order of the ledger.
    pub effects: Vec<&'h Effect>,
    /// Leases that clients held: counter, token, since when.
    pub grants: Vec<(&'h str, u64, u64)>,
    /// All faults.
    pub struck: Vec<&'h Struck>,
    /// When all faults were over.
    pub calm: Option<u64>,
    /// What counters show in the end, by name: value, token.
    pub counters: BTreeMap<&'h str, (i64, Option<u64>)>,
    /// How many transactions stood open in the end.
    pub open_transactions: u64,
}

impl<'h> History<'h> {
    /// Sorts events.
    #[must_use]
    pub fn new(events: &'h [Event]) -> Self {
        let mut history = Self::default();
        let answers: BTreeMap<u64, &Answered> = events
            .iter()
            .filter_map(|event| if let Event::Answered(answered) = event { Some((answered.n, answered)) } else { None })
            .collect();
        for event in events {
            match event {
                Event::Sent(sent) => {
                    let exchange = Exchange { sent, answered: answers.get(&sent.n).copied() };
                    history.keys.entry(&sent.key).or_default().exchanges.push(exchange);
                }
                Event::Granted { at, resource, token } => history.grants.push((resource, *token, *at)),
                Event::Struck(struck) => history.struck.push(struck),
                Event::Calm { at } => history.calm = Some(*at),
                Event::Effect(effect) => history.effects.push(effect),
                Event::Counter { resource, value, token } => {
                    history.counters.insert(resource, (*value, *token));
                }
                Event::OpenTransactions { count } => history.open_transactions = *count,
                Event::Run { .. } | Event::Answered(_) | Event::Unanswered { .. } => {}
            }
        }
        history.effects.sort_by_key(|effect| effect.seq);
        for effect in &history.effects {
            if let Some(key) = &effect.key {
                history.keys.entry(key).or_default().effects.push(effect);
            }
        }
        history
    }

    /// Whether the store's clock was set.
    #[must_use]
    pub fn clock_stepped(&self) -> bool {
        self.struck.iter().any(|struck| struck.ahead != 0)
    }

    /// By how many microseconds the store's clock was ahead at most.
    #[must_use]
    pub fn most_ahead(&self) -> u64 {
        self.struck.iter().filter_map(|struck| u64::try_from(struck.ahead).ok()).max().unwrap_or(0)
    }

    /// How often the store forgot something within this time.
    #[must_use]
    pub fn losses(&self, from: u64, to: u64) -> usize {
        self.struck.iter().filter(|struck| struck.forgets && struck.from <= to && struck.to >= from).count()
    }
}
