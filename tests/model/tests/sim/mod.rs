//! One simulated service: processes that share a store, and clients that retry until they are answered.

mod door;
mod nemesis;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use idempotency::{Engine, Fingerprint, Key, Lease, Operation, RecordId, ScopeId, Settings, State, Store};
use idempotency_memory::MemoryStore;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{sleep, timeout};

pub(crate) use door::Door;
use door::{Ends, Plan, Told};
use nemesis::{Nemesis, SimClock};

type SimEngine = Engine<Nemesis<MemoryStore<SimClock>>>;

/// What is simulated.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setting {
    /// How requests reach their work.
    pub(crate) door: Door,
    /// A rule that is broken, which must be found.
    pub(crate) broken: Option<Broken>,
    /// What was sent over a connection that broke may arrive later than what the caller sends next.
    pub(crate) late_first_tries: bool,
}

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The store frees an abandoned claim and does not refuse its late copy.
    NoDeadNonces,
    /// Abandoning does nothing.
    NoAbandon,
    /// A repeated claim is another claim.
    NoncesIgnored,
    /// A claim is forgotten when its lease ends.
    InFlightForgotten,
}

/// What must be seen often in all seeds together.
pub(crate) const SIGHTS: [&str; 8] = [
    "replayed",
    "in doubt",
    "in flight",
    "store error",
    "cancelled",
    "answer lost",
    "carried out late",
    "carried out twice",
];

/// Everything about one seed.
struct World {
    door: Door,
    store: Nemesis<MemoryStore<SimClock>>,
    effects: [AtomicU32; KEYS],
    /// Attempts that ended with nobody knowing.
    unknown: [AtomicBool; KEYS],
    values: parking_lot::Mutex<[Vec<u64>; KEYS]>,
    sights: parking_lot::Mutex<BTreeMap<&'static str, u64>>,
}

const KEYS: usize = 2;
const CLIENTS: u64 = 4;
const LEASE: Duration = Duration::from_secs(2);

/// Runs one seed. What went wrong, if something did.
pub(crate) fn simulate(seed: u64, setting: Setting) -> Result<BTreeMap<&'static str, u64>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = SimClock::new();
        let memory = MemoryStore::builder().clock(clock.clone()).build();
        let world = Arc::new(World {
            door: setting.door,
            store: Nemesis::new(memory, seed, setting),
            effects: Default::default(),
            unknown: Default::default(),
            values: Default::default(),
            sights: Default::default(),
        });
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            clients.push(tokio::spawn(client_runs(Arc::clone(&world), StdRng::seed_from_u64(seed * 31 + client))));
        }
        let mut random = StdRng::seed_from_u64(!seed);
        for _ in 0..6 {
            sleep(Duration::from_millis(random.random_range(500..4_000))).await;
            clock.jump(random.random_range(-3_000..3_000));
        }
        world.store.heal();
        for client in clients {
            client.await.map_err(|error| error.to_string())?;
        }
        world.judge().await
    })
}

/// A process with an engine of its own, whose clients retry until they have an answer.
async fn client_runs(world: Arc<World>, mut random: StdRng) {
    let settings = Settings::default().lease(Lease::new(LEASE).unwrap());
    let engine = Engine::new(world.store.clone(), settings);
    for _ in 0..3 {
        sleep(Duration::from_millis(random.random_range(0..3_000))).await;
        let key = random.random_range(0..KEYS);
        for _ in 0..random.random_range(1..5) {
            let patience = match random.random_ratio(1, 6) {
                true => random.random_range(1..2_500),
                false => 60_000,
            };
            let asked = world.request(&engine, key, &mut random);
            let Ok(ended) = timeout(Duration::from_millis(patience), asked).await else {
                world.see("cancelled");
                continue;
            };
            if ended {
                break;
            }
            sleep(Duration::from_millis(random.random_range(10..3_000))).await;
        }
    }
    let _ = engine.drain(Duration::from_secs(300)).await;
}

fn key_of(key: usize) -> String {
    format!("key-{key}")
}

fn operation(key: usize) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(&key_of(key)).unwrap(), Fingerprint::of(["10 EUR"]))
}

impl World {
    fn see(&self, sight: &'static str) {
        *self.sights.lock().entry(sight).or_default() += 1;
    }

    /// One request. Whether it was answered for good.
    async fn request(self: &Arc<Self>, engine: &SimEngine, key: usize, random: &mut StdRng) -> bool {
        let (sight, ended) = match self.ask(engine, key, Plan::random(random)).await {
            Told::Ran(value) => {
                self.values.lock()[key].push(value);
                ("ran", true)
            }
            Told::Replayed(value) => {
                self.values.lock()[key].push(value);
                ("replayed", true)
            }
            Told::InDoubt => ("in doubt", true),
            Told::InFlight => ("in flight", false),
            Told::StoreError => ("store error", false),
            Told::WorkFailed => ("work failed", false),
            Told::Otherwise(_) => ("otherwise", false),
        };
        self.see(sight);
        ended
    }

    /// Nothing misbehaves any more, and all leases have ended.
    async fn judge(self: &Arc<Self>) -> Result<BTreeMap<&'static str, u64>, String> {
        sleep(Duration::from_secs(600)).await;
        let engine = Engine::new(self.store.clone(), Settings::default().lease(Lease::new(LEASE).unwrap()));
        for key in 0..KEYS {
            let effects = self.effects[key].load(Ordering::SeqCst);
            if effects > 1 {
                return Err(format!("key {key} had {effects} effects"));
            }
            let operation = operation(key);
            let id: RecordId = operation.record_id();
            let entry = self.store.inner().inspect(&id).await.unwrap();
            let ran = self.unknown[key].load(Ordering::SeqCst);
            match entry.map(|entry| entry.state) {
                Some(State::InFlight) => return Err(format!("key {key} is in flight for ever")),
                Some(State::InDoubt) if !ran => return Err(format!("key {key} is in doubt, and nothing ran")),
                _ => {}
            }
            let plan = Plan { before: Duration::ZERO, after: Duration::ZERO, ends: Ends::Done, value: 0 };
            match self.ask(&engine, key, plan).await {
                Told::Ran(value) | Told::Replayed(value) => self.values.lock()[key].push(value),
                Told::InDoubt => {}
                Told::InFlight => return Err(format!("key {key} ends in flight")),
                Told::StoreError => return Err(format!("key {key} ends in an error of the store")),
                Told::WorkFailed => return Err(format!("key {key} ends in work that failed")),
                Told::Otherwise(what) => return Err(format!("key {key} ends in {what}")),
            }
            if self.effects[key].load(Ordering::SeqCst) > 1 {
                return Err(format!("key {key} was run again at last"));
            }
            let values = &self.values.lock()[key];
            if values.iter().any(|value| *value != values[0]) {
                return Err(format!("key {key} was answered {values:?}"));
            }
        }
        let mut sights = self.sights.lock().clone();
        sights.extend(self.store.sights());
        Ok(sights)
    }
}
