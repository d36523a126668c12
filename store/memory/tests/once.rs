//! No time-ordered key runs twice, whatever clocks, clients and crashes do; and each rule that sees to it is needed.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotency::conformance::once::{Schedule, Seen, World, judged_when_sent, play, without_floors};
use idempotency::time::{Clock, ManualClock};
use idempotency::{Claim, Claimed, Store as _, StoreError, Timestamp};
use idempotency_memory::{Ceiling, MemoryStore, MissingCeiling};
use tempfile::TempDir;

const MANY: u64 = 250_000;
const SEEDS: u64 = 4;
/// Each broken rule is found long before.
const ENOUGH: u64 = 100_000;
const SECOND: Duration = Duration::from_secs(1);
const STEPS_BACK: Duration = Duration::from_secs(1000);

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_micros(1_800_000_000_000_000))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// A rule of a store under a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A purge raises the floor of its class to the key's time.
    PurgesRaiseTheFloor,
    /// The floor begins at the ceiling that the last life left.
    TheFloorBeginsAtTheCeiling,
    /// The ceiling is durable before a key up to it is granted.
    TheCeilingIsDurable,
    /// The age is judged when the claim is carried out.
    TheClaimJudgesTheAge,
}

/// A store under a ceiling; without one of its rules, if one is named.
struct UnderCeiling {
    clock: ManualClock,
    directory: TempDir,
    store: Option<MemoryStore<ManualClock>>,
    without: Option<Rule>,
}

impl UnderCeiling {
    fn new(without: Option<Rule>) -> Self {
        let directory = quick_directory();
        let mut world = Self { clock: clock(), directory, store: None, without };
        world.start();
        world
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ceiling")
    }

    fn start(&mut self) {
        let ceiling = Ceiling::at(self.path()).ahead(Duration::from_secs(3)).unwrap();
        let ceiling = ceiling.missing(MissingCeiling::NothingRan);
        let builder = MemoryStore::builder().clock(self.clock.clone());
        self.store = Some(builder.build_under(&ceiling).unwrap());
    }
}

impl World for UnderCeiling {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> &Self::Store {
        self.store.as_ref().unwrap()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn set(&mut self, now: Timestamp) {
        self.clock.set(now);
    }

    async fn restart(&mut self) {
        self.store = None;
        match self.without {
            Some(Rule::TheFloorBeginsAtTheCeiling) => fs::remove_file(self.path()).unwrap(),
            // What was written last was still on its way to the disk; all that was granted under it was not.
            Some(Rule::TheCeilingIsDurable) => lower(&self.path(), Duration::from_secs(3)),
            _ => {}
        }
        self.start();
    }

    async fn claim(&self, claim: Claim, sent: Timestamp) -> Result<Claimed, StoreError> {
        let claim = match self.without {
            Some(Rule::PurgesRaiseTheFloor) => without_floors(claim),
            Some(Rule::TheClaimJudgesTheAge) => judged_when_sent(claim, sent, self.now()),
            _ => claim,
        };
        self.store().claim(&claim).await
    }
}

/// Where a file is durable at once, if the machine has such a place: how long a disk takes is not the question here.
fn quick_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

fn lower(path: &Path, by: Duration) {
    let text = fs::read_to_string(path).unwrap();
    let ceiling = text.lines().find_map(|line| line.strip_prefix("ceiling ")).unwrap();
    let lowered = Timestamp::from_micros(ceiling.parse().unwrap()).before(by).micros().to_string();
    fs::write(path, text.replace(ceiling, &lowered)).unwrap();
}

fn seen_of(without: Option<Rule>, seed: u64, claims: u64) -> Seen {
    let mut world = UnderCeiling::new(without);
    block_on(play(&mut world, Schedule { seed, claims, unit: SECOND, steps_back: STEPS_BACK, drift_changes: true }))
}

#[test]
fn no_key_runs_twice_under_a_ceiling() {
    let all = std::thread::scope(|scope| {
        let seeds: Vec<_> = (0..SEEDS).map(|seed| scope.spawn(move || seen_of(None, seed, MANY))).collect();
        seeds.into_iter().map(|seed| seed.join().unwrap()).collect::<Vec<_>>()
    });
    for (seed, seen) in all.iter().enumerate() {
        assert_eq!((seen.twice, seen.claims), (0, MANY), "seed {seed}: {seen:?}");
        // It was a test: of all that can happen a good part did.
        for count in [seen.granted, seen.too_old, seen.answered] {
            assert!(count > MANY / 50, "seed {seed}: {seen:?}");
        }
        assert!(seen.restarts > MANY / 1000, "seed {seed}: {seen:?}");
    }
}

#[test]
fn without_any_rule_of_the_ceiling_a_key_runs_twice() {
    let rules = [
        Rule::PurgesRaiseTheFloor,
        Rule::TheFloorBeginsAtTheCeiling,
        Rule::TheCeilingIsDurable,
        Rule::TheClaimJudgesTheAge,
    ];
    for rule in rules {
        let seen = seen_of(Some(rule), 0, ENOUGH);
        assert_eq!(seen.twice, 1, "without {rule:?}: {seen:?}");
    }
}

/// The clock of a store that has no ceiling: when it starts it may show the time before that, which is a floor lower by so much.
#[derive(Clone)]
struct Early {
    clock: ManualClock,
    by: Arc<AtomicU64>,
}

impl Clock for Early {
    fn now(&self) -> Timestamp {
        self.clock.now().before(Duration::from_secs(self.by.load(Ordering::SeqCst)))
    }
}

/// A store without a ceiling, whose floor begins at its start and the drift, or at its start alone. The machine's clock does not step
/// back and the drift stays as it is, since such a store knows neither of its last life.
struct Bare {
    clock: Early,
    store: MemoryStore<Early>,
    drift_counts: bool,
}

impl Bare {
    fn new(drift_counts: bool) -> Self {
        let clock = Early { clock: clock(), by: Arc::default() };
        let store = MemoryStore::builder().clock(clock.clone()).build();
        Self { clock, store, drift_counts }
    }
}

impl World for Bare {
    type Store = MemoryStore<Early>;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn set(&mut self, now: Timestamp) {
        self.clock.clock.set(now);
    }

    async fn restart(&mut self) {
        // The longest drift of the schedules.
        self.clock.by.store(if self.drift_counts { 0 } else { 30 }, Ordering::SeqCst);
        self.store = MemoryStore::builder().clock(self.clock.clone()).build();
        self.clock.by.store(0, Ordering::SeqCst);
    }
}

#[test]
fn without_a_ceiling_the_floor_begins_at_the_start_and_the_drift() {
    let seen = |drift_counts| {
        let schedule =
            Schedule { seed: 0, claims: ENOUGH, unit: SECOND, steps_back: Duration::ZERO, drift_changes: false };
        block_on(play(&mut Bare::new(drift_counts), schedule))
    };
    let safe = seen(true);
    assert_eq!((safe.twice, safe.claims), (0, ENOUGH), "{safe:?}");
    let broken = seen(false);
    assert_eq!(broken.twice, 1, "{broken:?}");
}
