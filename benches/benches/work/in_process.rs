//! Claims among many live records in process: what they take of time, and what the records take of memory.

use std::collections::{HashMap, VecDeque};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use idempotency::protocol::grant;
use idempotency::time::{Clock, ManualClock, SystemClock};
use idempotency::{Claim, Claimed, Holder, Life, Outcome, Record, RecordId, Recovery, Store as _, Timestamp, Windows};
use idempotency_benches::{Subject, compare, table, timed};
use idempotency_memory::MemoryStore;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::key;
use crate::work::claim;

/// What a map of records takes without any of the rules: 64 shards, a mutex each, and the order in which they came.
struct Bare(Vec<Mutex<Shard>>);

#[derive(Default)]
struct Shard {
    records: HashMap<RecordId, Record>,
    order: VecDeque<RecordId>,
}

impl Bare {
    fn new() -> Self {
        Self((0..64).map(|_| Mutex::default()).collect())
    }

    fn shard(&self, id: &RecordId) -> &Mutex<Shard> {
        &self.0[usize::from(id.as_bytes()[0] % 64)]
    }

    fn insert(&self, id: RecordId, record: Record) {
        let mut shard = self.shard(&id).lock().unwrap();
        shard.records.entry(id).or_insert(record);
        shard.order.push_back(id);
    }

    /// Inserts one and removes the oldest.
    fn claim(&self, id: RecordId, record: Record) {
        self.insert(id, record);
        let mut shard = self.shard(&id).lock().unwrap();
        if let Some(oldest) = shard.order.pop_front() {
            shard.records.remove(&oldest);
        }
    }
}

/// The system's clock, which is also moved: what is measured reads it as a server does, and windows of hours pass in seconds.
#[derive(Clone)]
struct Moved(ManualClock);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_micros(self.0.now().micros().unsigned_abs()))
    }
}

/// A store that has so many live records when a key comes every [`TICK`].
struct Among {
    store: MemoryStore<Moved>,
    clock: ManualClock,
    life: Life,
}

impl Among {
    /// Of so many live records, `whole` have their outcomes.
    fn new(live: u32, whole: u32) -> Self {
        let clock = ManualClock::new(Timestamp::from_micros(0));
        let store = MemoryStore::builder().clock(Moved(clock.clone())).build();
        let windows = Windows::new(TICK * whole, TICK * live).unwrap();
        Self { store, clock, life: Life::new(Recovery::Hold, windows) }
    }

    fn next(&self) -> Claim {
        claim(&key(), self.life.clone())
    }

    async fn claim(&self, claim: &Claim) -> Holder {
        self.clock.advance(TICK);
        let Claimed::Granted(grant) = self.store.claim(claim).await.unwrap() else { panic!("not granted") };
        Holder { id: claim.id, token: grant.token, nonce: claim.nonce }
    }

    async fn complete(&self, holder: &Holder) {
        self.store.complete(holder, &Outcome::new(201, Bytes::from_static(&[b'x'; 300]))).await.unwrap();
    }

    fn subject<'r>(&'r self, name: &str, n: u32, runtime: &'r Runtime) -> Subject<'r> {
        Subject::new(name, n, runtime, async |n| {
            let claims: Vec<_> = (0..n).map(|_| self.next()).collect();
            let mut holders = Vec::with_capacity(claims.len());
            let time = timed(async {
                for claim in &claims {
                    holders.push(self.claim(claim).await);
                }
            });
            let time = time.await;
            for holder in &holders {
                self.complete(holder).await;
            }
            time
        })
    }

    /// Claims and completes so many keys; says what the slowest claim took of this thread's time.
    async fn fill(&self, keys: u32) -> Duration {
        let mut slowest = Duration::ZERO;
        for _ in 0..keys {
            let claim = self.next();
            let begun = thread_time();
            let holder = self.claim(&claim).await;
            slowest = slowest.max(thread_time() - begun);
            self.complete(&holder).await;
        }
        slowest
    }
}

/// Each claim that is measured finds that a record is over, and clears it away; in another store it also finds an outcome that is over, as
/// it does in the long run where tombstones outlive their outcomes.
pub(crate) fn compared(runtime: &Runtime, live: u32, quick: bool) {
    let (bare, among, with_tombstones) = (Bare::new(), Among::new(live, live), Among::new(live, live / 2));
    let record = grant(None, &among.next(), Timestamp::from_micros(1_800_000_000_000_000)).0;
    for _ in 0..live {
        bare.insert(among.next().id, record.clone());
    }
    let growing = runtime.block_on(among.fill(live));
    runtime.block_on(with_tombstones.fill(live));
    // So few that the size stays what it is, and no more are in flight at once than in a busy server.
    let (rounds, n) = if quick { (1, 10) } else { (101, (live / 200).clamp(50, 500)) };
    let mut subjects = [
        Subject::new("bare map, insert and remove the oldest", n, runtime, async |n| {
            let ids: Vec<RecordId> = (0..n).map(|_| among.next().id).collect();
            timed(async { ids.into_iter().for_each(|id| bare.claim(id, record.clone())) }).await
        }),
        among.subject("in process, claim; a record goes", n, runtime),
        with_tombstones.subject("in process, claim; an outcome and a record go", n, runtime),
    ];
    let rows = compare(rounds, &mut subjects);
    println!("\n{live} live records\n\n{}", table(&rows));
    drop(subjects);
    let grown = runtime.block_on(among.fill(live.min(1_000_000)));
    println!(
        "slowest claim: {growing:.1?} while the store grows to that, {grown:.1?} at that size, of its thread's time"
    );
}

/// What records take of a process's memory: each kind in a process of its own, where nothing was freed before.
pub(crate) fn resident(live: u32) {
    let weigh = |whole: u32| {
        let myself = std::env::current_exe().unwrap();
        let said = Command::new(myself).args([WEIGH, &live.to_string(), &whole.to_string()]).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    };
    println!(
        "\nresident bytes, among {live}: {} a record with an outcome of 300 bytes, {} a tombstone",
        weigh(live),
        weigh(live / 1000)
    );
}

/// Prints what each of so many live records takes, so many of which have their outcomes.
pub(crate) fn weigh(arguments: &[String]) {
    let [live, whole] = [0, 1].map(|n| arguments[n].parse::<u32>().unwrap());
    let among = Among::new(live, whole);
    let runtime = Runtime::new().unwrap();
    // What the first ones take once is no record's.
    runtime.block_on(among.fill(1));
    let before = resident_bytes();
    runtime.block_on(among.fill(live));
    println!("{:.0}", (resident_bytes() - before) as f64 / f64::from(live));
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// What this thread has run for: others that run meanwhile do not count.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// A key comes so often.
const TICK: Duration = Duration::from_millis(1);

/// The argument by which the bench runs itself to weigh.
pub(crate) const WEIGH: &str = "--weigh";
