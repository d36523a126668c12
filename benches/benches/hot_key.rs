//! Whether many duplicates of one running key hold up the others: the 99th percentile of what other keys take meanwhile, against the same
//! load with a running key for each duplicate. In process. `cargo bench -p idempotency-benches --bench hot_key`; `-- --quick` runs it for a
//! moment.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotency::{
    Answer, Claimed, Engine, Fingerprint, Held, InFlight, Key, Operation, Outcome, Recorded, ScopeId, Settings,
};
use idempotency_benches::{Subject, compare};
use idempotency_memory::MemoryStore;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::interval;

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, duplicates) = if quick { (1, 500) } else { (21, 10_000) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().unwrap();
    let reject = Settings::default();
    let wait = reject.clone().in_flight(InFlight::Wait(Duration::from_secs(600))).max_waiting(usize::MAX);
    println!("| {duplicates} duplicates of one key | p99 of other keys, ratio to spread | quartiles | p99 | spread |");
    println!("|---|---|---|---|---|");
    for (name, settings, measured) in [
        ("rejected", &reject, Phase::Arriving),
        ("waiting, while they come", &wait, Phase::Arriving),
        ("waiting, as the key ends", &wait, Phase::Ending),
    ] {
        let mut subjects = [Running::Each, Running::One].map(|running| {
            let load = Load { settings: settings.clone(), running, duplicates, measured };
            subject(load, &runtime)
        });
        let rows = compare(rounds, &mut subjects);
        let (spread, hot) = (&rows[0], &rows[1]);
        let (low, high) = hot.spread;
        println!("| {name} | {:.2}x | {low:.2}-{high:.2} | {:.0?} | {:.0?} |", hot.ratio, hot.time, spread.time);
    }
}

/// More than small machines have cores, so that a thread can be stopped while it holds a lock: so convoys begin.
const THREADS: usize = 8;

/// Where duplicates and other requests come in equal numbers.
struct Load {
    settings: Settings,
    /// Whose duplicates come.
    running: Running,
    /// As many keys run, whosoever duplicates come.
    duplicates: u32,
    measured: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Running {
    One,
    Each,
}

/// Of what time the other requests count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// While duplicates come.
    Arriving,
    /// From when all keys that run end until all their duplicates are answered.
    Ending,
}

/// What is timed is one percentile in a round.
fn subject(load: Load, runtime: &Runtime) -> Subject<'_> {
    let name = if load.running == Running::One { "one" } else { "each" };
    Subject::new(name, 1, runtime, async move |_| load.round().await)
}

/// How many duplicates come in a millisecond, and how many others: so many that there is something to wait for, and time left.
const AT_ONCE: u32 = 50;

impl Load {
    async fn round(&self) -> Duration {
        let engine = Engine::new(MemoryStore::new(), self.settings.clone());
        let mut running = Vec::new();
        for n in 0..self.duplicates {
            running.push(run(&engine, &operation("running", n)).await);
        }
        let mut ticks = interval(Duration::from_millis(1));
        let (mut duplicates, mut others) = (JoinSet::new(), JoinSet::new());
        let mut fresh = 0;
        let mut come = |others: &mut JoinSet<Duration>| {
            for _ in 0..AT_ONCE {
                others.spawn(other(engine.clone(), operation("other", fresh)));
                fresh += 1;
            }
        };
        for first in (0..self.duplicates).step_by(AT_ONCE as usize) {
            ticks.tick().await;
            for n in first..first + AT_ONCE {
                let of = if self.running == Running::One { 0 } else { n };
                duplicates.spawn(duplicate(engine.clone(), operation("running", of)));
            }
            come(&mut others);
        }
        if self.measured == Phase::Ending {
            others.join_all().await;
            others = JoinSet::new();
            for held in running.drain(..) {
                duplicates.spawn(end(held));
            }
            while !duplicates.is_empty() {
                ticks.tick().await;
                come(&mut others);
                while duplicates.try_join_next().is_some() {}
            }
        }
        let percentile = percentile_99(others.join_all().await);
        // Before the next round begins, whoever still waits has left.
        duplicates.shutdown().await;
        percentile
    }
}

fn percentile_99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

/// Says how long it took from when it came.
fn other(engine: Engine<MemoryStore>, operation: Operation) -> impl Future<Output = Duration> + Send + 'static {
    let came = Instant::now();
    async move {
        end(run(&engine, &operation).await).await;
        came.elapsed()
    }
}

async fn duplicate(engine: Engine<MemoryStore>, operation: Operation) {
    match engine.claim(&operation).await.unwrap() {
        Answer::DoNot(Claimed::InFlight { .. } | Claimed::Replay { .. }) => {}
        answer => panic!("{answer:?}"),
    }
}

async fn run(engine: &Engine<MemoryStore>, operation: &Operation) -> Held<MemoryStore> {
    match engine.claim(operation).await.unwrap() {
        Answer::Run(held) => held,
        answer => panic!("{answer:?}"),
    }
}

async fn end(held: Held<MemoryStore>) {
    let recorded = held.complete(Outcome::new(201, Bytes::from_static(&[b'x'; 200]))).await;
    assert!(matches!(recorded, Recorded::Applied));
}

fn operation(kind: &str, n: u32) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(&format!("{kind}-{n}")).unwrap(), Fingerprint::of(["10 EUR"]))
}
