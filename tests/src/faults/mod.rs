//! Fault runs: several testbeds over one store and one ledger, clients that ask again, and a nemesis that stops, kills, cuts off and makes
//! forget, all of it told by a seed. What happened is taken down and then [judged](check).
//!
//! ```no_run
//! # #[tokio::main]
//! # async fn main() {
//! use idempotency_testbed::faults::{Plan, Store, run};
//!
//! let ran = run("/path/to/testbed".as_ref(), &Plan::new(Store::Sqlite, 7)).await;
//! assert!(ran.faults().is_empty(), "{ran}");
//! # }
//! ```

mod checks;
mod clients;
mod history;
mod locks;
mod nemesis;
mod place;
mod schedule;
mod seen;
mod server;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use self::clients::{COUNTERS, Client, World, wait_for};
use self::history::Recorder;
use self::nemesis::Loot;
use self::place::Place;

pub use checks::{Violation, check};
pub use history::{Answered, Effect, Event, Exchange, History, Kind, OfKey, Sent, Struck};
pub use place::Kind as Store;
pub use schedule::{Lane, Strike, What, Whom, lanes};
pub use seen::{Minimum, Seen};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Over which store.
    pub store: Store,
    /// Tells every fault and every client's choices.
    pub seed: u64,
    /// For how long there are faults. Default: a minute.
    pub length: Duration,
    /// Whether testbeds protect anything. Default: they do.
    pub protected: bool,
    /// Where the history is left. Default: nowhere.
    pub folder: Option<PathBuf>,
    /// What must have been seen. Default: 20 overlaps, 20 superseded, 100 lost replies.
    pub minimum: Minimum,
    /// How long a key may be unanswered when all faults are over. Default: 20 seconds, which are the longest transaction (five leases), the
    /// longest `Retry-After` (3 s), a client's own patience (3 s), and for a busy machine as much again.
    pub patience: Duration,
}

impl Plan {
    /// With the defaults.
    #[must_use]
    pub fn new(store: Store, seed: u64) -> Self {
        let (length, patience) = (Duration::from_secs(60), Duration::from_secs(20));
        Self { store, seed, length, protected: true, folder: None, minimum: Minimum::default(), patience }
    }

    /// The arguments of the program `faults` that run the same.
    #[must_use]
    pub fn arguments(&self) -> String {
        let unprotected = if self.protected { "" } else { " --unprotected" };
        let length = humantime::format_duration(self.length).to_string().replace(' ', "");
        format!("--store {} --seed {} --duration {length}{unprotected}", self.store, self.seed)
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was run.
    pub plan: Plan,
    /// All that happened.
    pub events: Vec<Event>,
    /// The same in numbers.
    pub seen: Seen,
    /// Everything that must not be.
    pub violations: Vec<Violation>,
}

impl Ran {
    /// Why the run is no proof: a protected one when something must not be, or when it saw too little; an unprotected one when it saw no double
    /// effect, or no lost update.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        if self.plan.protected {
            let violations = self.violations.iter().map(ToString::to_string);
            return violations.chain(self.plan.minimum.missing(&self.seen)).collect();
        }
        let bad = [("double effect", self.double_effects()), ("lost update", self.lost_updates())];
        let unseen = bad.into_iter().filter(|(_, count)| *count == 0);
        unseen.map(|(what, _)| format!("no {what} without protection: this would not notice one")).collect()
    }

    /// How many keys have more effects than they may.
    #[must_use]
    pub fn double_effects(&self) -> usize {
        self.violations.iter().filter(|violation| violation.is_double_effect()).count()
    }

    /// How often a counter was not what its effects make of it.
    #[must_use]
    pub fn lost_updates(&self) -> usize {
        self.violations.iter().filter(|violation| violation.is_lost_update()).count()
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seen)?;
        writeln!(f, "  {:>6}  violations", self.violations.len())?;
        writeln!(f, "  {:>6}  of them double effects", self.double_effects())?;
        writeln!(f, "  {:>6}  of them lost updates", self.lost_updates())?;
        let faults = self.faults();
        faults.iter().take(SHOWN).try_for_each(|fault| writeln!(f, "FAULT {fault}"))?;
        if faults.len() > SHOWN {
            writeln!(f, "and {} more", faults.len() - SHOWN)?;
        }
        let verdict = match (faults.is_empty(), self.plan.protected) {
            (true, true) => "sound",
            (true, false) => "double effects and lost updates, as there must be without protection",
            (false, _) => "NOT SOUND",
        };
        writeln!(f, "verdict: {verdict} (run again with {})", self.plan.arguments())
    }
}

/// Runs it, with the testbed program at this path.
///
/// # Panics
/// When the rig itself fails: a program that is missing, a server that does not start.
pub async fn run(program: &Path, plan: &Plan) -> Ran {
    let history = Recorder::new(plan.folder.as_deref());
    history.add(Event::Run { arguments: plan.arguments() });
    let place = Place::new(program, plan.store, TESTBEDS, LEASE, plan.protected).await;
    let (done, hopeless) = (AtomicBool::new(false), AtomicBool::new(false));
    let world = World {
        place: &place,
        history: &history,
        locks: Default::default(),
        lease: LEASE,
        done: &done,
        hopeless: &hopeless,
    };
    let kinds = kinds(plan.store);
    let clients = (0..).zip(&kinds).map(|(n, kind)| Client::new(&world, n, *kind, plan.seed).run());
    let clients = join_all(clients);
    tokio::pin!(clients);
    let strikes = strike(&place, plan, &history, &done);
    tokio::select! {
        _ = &mut clients => unreachable!("clients go on until they are told"),
        () = strikes => {}
    }
    history.add(Event::Calm { at: history.now() });
    done.store(true, Ordering::SeqCst);
    let mut probes = Vec::new();
    for (n, kind) in (0..).zip([Kind::Hold, Kind::Rerun, Kind::Counter, Kind::Fenced]) {
        for resource in 0..COUNTERS {
            let n = PROBES + n * 10 + resource as u64;
            probes.push(Client::new(&world, n, kind, plan.seed).probe(resource));
        }
    }
    let answered = async {
        tokio::join!(&mut clients, join_all(probes));
    };
    tokio::pin!(answered);
    if !wait_for(&mut answered, plan.patience).await {
        hopeless.store(true, Ordering::SeqCst);
        answered.await;
    }
    close(&place, plan.patience, &history).await;
    let events = history.events();
    let sorted = History::new(&events);
    let (seen, violations) = (Seen::new(&events, &sorted), check(&sorted, plan.patience));
    let ran = Ran { plan: plan.clone(), seen, violations, events };
    if let Some(folder) = &plan.folder {
        std::fs::write(folder.join("report.txt"), ran.to_string()).expect("a folder of ours");
    }
    ran
}

/// Which clients there are.
fn kinds(store: Store) -> Vec<Kind> {
    let each = [(Kind::Hold, 4), (Kind::Rerun, 4), (Kind::Counter, 16), (Kind::Fenced, 12), (Kind::Transaction, 4)];
    let served = each.into_iter().filter(|(kind, _)| *kind != Kind::Transaction || store.is_one_database());
    served.flat_map(|(kind, clients)| std::iter::repeat_n(kind, clients)).collect()
}

/// All faults, until all is well again.
async fn strike(place: &Place, plan: &Plan, history: &Recorder, done: &AtomicBool) {
    let end = Instant::now() + plan.length;
    let lanes = lanes(plan.seed, plan.store, TESTBEDS, LEASE, plan.length);
    let strikes = join_all(lanes.iter().map(|lane| nemesis::strike(place, plan.store, lane, end, history)));
    let over = AtomicBool::new(false);
    let mut thieves = vec![Loot::Successes(plan.store)];
    thieves.extend(plan.store.has_link().then_some(Loot::Commits(plan.store)));
    let thieves = (0..TESTBEDS).flat_map(|n| thieves.iter().map(move |loot| (n, *loot))).enumerate();
    let thefts = thieves.map(|(number, (n, loot))| {
        let seed = plan.seed.wrapping_add(1_000 * (number as u64 + 1));
        nemesis::steal(place, n, loot, seed, &over, history)
    });
    let strikes = async {
        strikes.await;
        sleep(end.saturating_duration_since(Instant::now())).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(strikes, join_all(thefts));
    debug_assert!(!done.load(Ordering::SeqCst), "clients go on until they are told");
    nemesis::calm(place).await;
}

/// Takes down what is left: the ledger, the counters, open transactions.
async fn close(place: &Place, patience: Duration, history: &Recorder) {
    let running = place.slots[0].testbed.lock().await;
    let testbed = running.as_ref().expect("all testbeds are up");
    for row in testbed.effect_rows("").await {
        let effect = serde_json::from_value(row).expect("a row of the ledger");
        history.add(Event::Effect(effect));
    }
    for kind in ["c", "f"] {
        for n in 0..COUNTERS {
            let resource = format!("{kind}{n}");
            let counter = testbed.get(&format!("/counter/{resource}")).await.json();
            let value = counter["value"].as_i64().expect("a counter");
            history.add(Event::Counter { resource, value, token: counter["token"].as_u64() });
        }
    }
    let count = nemesis::open_transactions(place, patience).await;
    history.add(Event::OpenTransactions { count });
}

/// How many testbeds there are: half of them hold, half of them run again.
const TESTBEDS: usize = 4;
/// Of claims and of counters.
const LEASE: Duration = Duration::from_millis(400);
/// Where the numbers of clients begin that look whether all is well again.
const PROBES: u64 = 1_000;
/// How many faults are shown.
const SHOWN: usize = 10;
