//! The trace: what happened, in order, by keys that nobody can read; and what operators see of the windows.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

mod log;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idempotency::time::{Clock as _, ManualClock, SystemClock};
use idempotency::trace::{TraceOptions, TraceSecret, TraceWriter};
use idempotency::{
    Answer, Engine, Fingerprint, Held, Key, Life, Operation, Recovery, RunError, ScopeId, Settings, Store, Windows,
    WorkError, recorded, run,
};
use idempotency_memory::MemoryStore;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tempfile::TempDir;
use tokio::time::sleep;
use tracing::Level;

use crate::log::Log;

fn operation(key: &str) -> Operation {
    Operation::new(ScopeId::new(["tenant-alpha"]), Key::parse(key).unwrap(), Fingerprint::of(["body"]))
}

fn engine(writer: &TraceWriter) -> Engine<MemoryStore> {
    Engine::new(MemoryStore::new(), Settings::default().trace(writer.route("charge")))
}

async fn claim<St: Store>(engine: &Engine<St>, key: &str) -> Option<Held<St>> {
    match engine.claim(&operation(key)).await.unwrap() {
        Answer::Run(held) => Some(held),
        Answer::DoNot(_) => None,
    }
}

/// A line, by its columns.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    time: String,
    key: String,
    size: u64,
    route: String,
    scope: String,
    took_ms: String,
}

/// Reads it as a program that knows the format only.
fn lines(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap();
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    assert_eq!(reader.headers().unwrap(), vec!["time", "key", "size", "route", "scope", "took_ms"]);
    let line = |record: Result<csv::StringRecord, csv::Error>| {
        let record = record.unwrap();
        let text = |n: usize| record[n].to_owned();
        Line {
            time: text(0),
            key: text(1),
            size: text(2).parse().unwrap(),
            route: text(3),
            scope: text(4),
            took_ms: text(5),
        }
    };
    reader.records().map(line).collect()
}

#[tokio::test]
async fn a_small_run_is_told_as_it_happened() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let before = SystemClock.now().micros();
    let writer = TraceWriter::options().create(&path).unwrap();
    let engine = engine(&writer);
    let value = "charged".to_owned();
    let work = async || {
        run(&engine, &operation("order-0042"), async |_| {
            sleep(Duration::from_millis(20)).await;
            Ok::<_, WorkError<io::Error>>(value.clone())
        })
        .await
    };
    work().await.unwrap();
    assert!(work().await.unwrap().replayed);
    let fails =
        async |key, error| run(&engine, &operation(key), async |_| Err::<(), WorkError<io::Error>>(error)).await;
    let nothing_done = WorkError::NothingDone(io::Error::other("no"));
    assert!(matches!(fails("order-0043", nothing_done).await, Err(RunError::Work(_))));
    assert!(matches!(fails("order-0044", io::Error::other("?").into()).await, Err(RunError::Work(_))));
    assert!(matches!(fails("order-0044", io::Error::other("?").into()).await, Err(RunError::InDoubt(_))));
    drop(claim(&engine, "order-0045").await.unwrap());
    let other =
        Operation { route: Some("say \"refund\", twice".into()), scope: ScopeId::global(), ..operation("order-0042") };
    drop(engine.claim(&other).await.unwrap());
    let after = SystemClock.now().micros();
    writer.flush();

    let text = fs::read_to_string(&path).unwrap();
    for raw in ["order", "tenant", "alpha", "charged", "body"] {
        assert!(!text.contains(raw), "{raw} is in the trace");
    }
    let lines = lines(&path);
    let size = recorded(&value).unwrap().size() as u64;
    let told: Vec<(u64, bool)> = lines.iter().map(|line| (line.size, !line.took_ms.is_empty())).collect();
    let ran = |size| (size, true);
    let answered = |size| (size, false);
    assert_eq!(told, [ran(size), answered(size), ran(0), ran(0), answered(0), ran(0), ran(0)]);
    assert!(lines[0].took_ms.parse::<f64>().unwrap() >= 20.0, "{}", lines[0].took_ms);

    let keys: Vec<&str> = lines.iter().map(|line| line.key.as_str()).collect();
    assert_eq!((keys[0], keys[3]), (keys[1], keys[4]));
    // The key of another scope is another one.
    let different: std::collections::HashSet<&str> = keys.iter().copied().collect();
    assert_eq!(different.len(), 5);
    assert!(lines[..6].iter().all(|line| line.scope == lines[0].scope && line.route == "charge"));
    assert_ne!(lines[6].scope, lines[0].scope);
    assert_eq!(lines[6].route, "say \"refund\", twice");
    assert!(lines.iter().all(|line| line.key.len() == 32 && line.scope.len() == 32));

    let mut last = before;
    for line in &lines {
        let (seconds, micros) = line.time.split_once('.').unwrap();
        assert_eq!(micros.len(), 6);
        let time = seconds.parse::<i64>().unwrap() * 1_000_000 + micros.parse::<i64>().unwrap();
        assert!(last <= time && time <= after, "{line:?}");
        last = time;
    }
}

/// The key of every line that three arrivals of each of 2000 keys leave.
async fn sampled(options: TraceOptions) -> HashMap<String, usize> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = options.create(&path).unwrap();
    let engine = engine(&writer);
    for _ in 0..3 {
        for n in 0..2000 {
            drop(claim(&engine, &format!("key-{n}")).await);
        }
    }
    writer.flush();
    let mut counts = HashMap::new();
    for line in lines(&path) {
        *counts.entry(line.key).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_sample_is_of_whole_keys_and_the_same_under_one_secret() {
    let options = |byte| TraceOptions::secret(TraceWriter::options(), TraceSecret::from_bytes(&[byte; 32]));
    let quarter = sampled(options(1).sample(0.25).unwrap()).await;
    assert!(quarter.values().all(|count| *count == 3), "a key is in the sample with all its arrivals");
    assert!((400..600).contains(&quarter.len()), "{} of 2000", quarter.len());
    assert_eq!(sampled(options(1).sample(0.25).unwrap()).await, quarter);
    let all = sampled(options(1)).await;
    assert_eq!(all.len(), 2000);
    assert!(quarter.keys().all(|key| all.contains_key(key)));
    let other = sampled(options(2)).await;
    assert!(other.keys().all(|key| !all.contains_key(key)), "another secret tells nothing of this one's keys");
}

#[tokio::test]
async fn what_arrived_first_is_written_first() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = TraceWriter::options().create(&path).unwrap();
    let engine = engine(&writer);
    let first = claim(&engine, "first").await.unwrap();
    let second = claim(&engine, "second").await.unwrap();
    second.release().await;
    assert!(claim(&engine, "first").await.is_none());
    writer.flush();
    assert_eq!(lines(&path), [], "the first one still runs");
    first.release().await;
    writer.flush();
    let lines = lines(&path);
    assert_eq!(lines.iter().map(|line| line.took_ms.is_empty()).collect::<Vec<_>>(), [false, false, true]);
    assert!(lines.is_sorted_by(|a, b| a.time <= b.time));
}

#[tokio::test]
async fn one_that_never_ends_is_given_up_when_memory_is_full() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = TraceWriter::options().most_pending(10).create(&path).unwrap();
    let engine = engine(&writer);
    let stuck = claim(&engine, "stuck").await.unwrap();
    for n in 0..9 {
        drop(claim(&engine, &format!("key-{n}")).await.unwrap());
    }
    writer.flush();
    assert_eq!((lines(&path).len(), writer.dropped()), (0, 0));
    drop(claim(&engine, "key-9").await.unwrap());
    writer.flush();
    assert_eq!((lines(&path).len(), writer.dropped()), (10, 1));
    drop(stuck);
    writer.flush();
    assert_eq!(lines(&path).len(), 10);
}

/// A disk that takes `room` bytes, or stands still.
struct Disk {
    room: usize,
    stands_still: Arc<AtomicBool>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.stands_still.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.room = self.room.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_disk_that_fails_harms_no_request() {
    let disk = |room| Disk { room, stands_still: Arc::default() };
    assert_eq!(TraceWriter::options().write_to(disk(5)).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let writer = TraceWriter::options().write_to(disk(200)).unwrap();
    let engine = engine(&writer);
    for n in 0..100 {
        drop(claim(&engine, &format!("key-{n}")).await.unwrap());
    }
    writer.flush();
    assert_eq!(writer.dropped(), 100);
    drop(claim(&engine, "later").await.unwrap());
    writer.flush();
    assert_eq!(writer.dropped(), 101);
}

#[tokio::test]
async fn a_disk_that_stands_still_holds_up_no_request() {
    let stands_still = Arc::new(AtomicBool::new(false));
    let disk = Disk { room: usize::MAX, stands_still: Arc::clone(&stands_still) };
    let writer = TraceWriter::options().most_pending(100).write_to(disk).unwrap();
    stands_still.store(true, Ordering::SeqCst);
    let engine = engine(&writer);
    for n in 0..1000 {
        drop(claim(&engine, &format!("key-{n}")).await.unwrap());
    }
    // At most two batches are on their way.
    assert!(writer.dropped() >= 800, "{}", writer.dropped());
    stands_still.store(false, Ordering::SeqCst);
    drop((engine, writer));
}

#[tokio::test]
async fn a_drain_leaves_nothing_unwritten() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = TraceWriter::options().create(&path).unwrap();
    let engine = engine(&writer);
    drop(claim(&engine, "key").await.unwrap());
    assert!(engine.drain(Duration::from_secs(10)).await);
    assert_eq!(lines(&path).len(), 1);
}

#[tokio::test]
async fn a_drain_writes_also_what_is_behind_something_that_still_runs() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    let writer = TraceWriter::options().create(&path).unwrap();
    let engine = engine(&writer);
    let stuck = claim(&engine, "stuck").await.unwrap();
    for n in 0..500 {
        drop(claim(&engine, &format!("key-{n}")).await.unwrap());
    }
    assert!(engine.drain(Duration::from_secs(10)).await);
    let written = lines(&path);
    assert_eq!((written.len(), writer.dropped()), (501, 0));
    assert_eq!((written[0].size, written[0].took_ms.as_str()), (0, ""));
    assert!(written[1..].iter().all(|line| !line.took_ms.is_empty()));
    // Its line is written, and not again.
    stuck.release().await;
    writer.flush();
    assert_eq!(lines(&path), written);
}

#[tokio::test]
async fn a_drain_takes_no_longer_than_it_may() {
    const LIMIT: Duration = Duration::from_secs(2);
    let stands_still = Arc::new(AtomicBool::new(false));
    let writer =
        TraceWriter::options().write_to(Disk { room: usize::MAX, stands_still: Arc::clone(&stands_still) }).unwrap();
    let engine = engine(&writer);
    engine.tracker().spawn(std::future::pending::<()>());
    stands_still.store(true, Ordering::SeqCst);
    drop(claim(&engine, "key").await.unwrap());
    let begun = Instant::now();
    assert!(!engine.drain(LIMIT).await);
    let took = begun.elapsed();
    stands_still.store(false, Ordering::SeqCst);
    assert!((LIMIT..LIMIT + LIMIT * 3 / 4).contains(&took), "{took:?}");
}

#[tokio::test]
async fn what_can_be_written_is_written_before_anything_is_lost() {
    // The writer needs the processor in between, which nobody promises; one go without a loss shows that it can.
    for _ in 0..5 {
        let directory = TempDir::new().unwrap();
        let writer = TraceWriter::options().most_pending(100).create(directory.path().join("trace.csv")).unwrap();
        let engine = engine(&writer);
        let first = claim(&engine, "first").await.unwrap();
        for n in 0..98 {
            drop(claim(&engine, &format!("key-{n}")).await.unwrap());
        }
        first.release().await;
        drop(claim(&engine, "last").await.unwrap());
        sleep(Duration::from_millis(50)).await;
        for n in 0..50 {
            drop(claim(&engine, &format!("more-{n}")).await.unwrap());
        }
        if writer.dropped() == 0 {
            return;
        }
    }
    panic!("all was lost that came while there was no room, which could have been made");
}

#[test]
fn each_start_has_a_file_of_its_own() {
    let directory = TempDir::new().unwrap();
    for _ in 0..3 {
        drop(TraceWriter::options().create_in(directory.path()).unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    let names = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.collect();
    assert_eq!(names.len(), 3);
    assert!(names.iter().all(|name| name.starts_with("trace-") && name.ends_with(".csv")), "{names:?}");
}

#[test]
fn a_file_that_is_there_is_not_written_over() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trace.csv");
    fs::write(&path, "mine").unwrap();
    assert_eq!(TraceWriter::options().create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn a_share_is_above_0_and_at_most_1() {
    for share in [0.0, -0.5, 1.1, f64::NAN, f64::INFINITY] {
        assert!(TraceWriter::options().sample(share).is_err(), "{share}");
    }
    for share in [f64::MIN_POSITIVE, 0.5, 1.0] {
        assert!(TraceWriter::options().sample(share).is_ok(), "{share}");
    }
}

/// What was counted while `work` ran: name and labels, and the sum.
fn counted(work: impl Future<Output = ()>) -> HashMap<String, f64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    let sum = |value: DebugValue| match value {
        DebugValue::Counter(count) => f64::from(u32::try_from(count).unwrap()),
        DebugValue::Histogram(values) => values.into_iter().map(f64::from).sum(),
        DebugValue::Gauge(value) => value.into_inner(),
    };
    let name = |key: &metrics::Key| {
        key.labels().fold(key.name().to_owned(), |name, label| format!("{name} {}", label.value()))
    };
    snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (name(key.key()), sum(value))).collect()
}

#[test]
fn duplicates_tell_how_late_they_are() {
    const SECOND: Duration = Duration::from_secs(1);
    let clock = ManualClock::new(SystemClock.now());
    let windows = Windows::new(10 * SECOND, 100 * SECOND).unwrap();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let settings = Settings::default().life(Life::new(Recovery::Hold, windows));
    let counted = counted(async {
        let engine = Engine::new(store, settings);
        let work = |key| {
            let engine = &engine;
            async move { run(engine, &operation(key), async |_| Ok::<_, WorkError<io::Error>>(1)).await }
        };
        work("a").await.unwrap();
        clock.advance(3 * SECOND);
        work("a").await.unwrap();
        clock.advance(17 * SECOND);
        assert!(matches!(work("a").await, Err(RunError::Executed(_))));
        claim(&engine, "b").await.unwrap().mark_in_doubt(None).await;
        clock.advance(7 * SECOND);
        assert!(claim(&engine, "b").await.is_none());
        // A first run of a key that is older than all that is remembered, and of one that is not.
        for (key, age) in [("old", 200), ("young", 50)] {
            let made = SystemClock.now().before(age * SECOND);
            let aged = Operation { key_time: Some(made), ..operation(key) };
            for _ in 0..2 {
                drop(engine.claim(&aged).await.unwrap());
            }
        }
        // The doubt is forgotten, and what is done about it may be done twice.
        clock.advance(200 * SECOND);
        drop(claim(&engine, "b").await.unwrap());
    });
    let count = |name: &str| counted.get(name).copied();
    assert_eq!(count("idempotency_duplicate_age_seconds replay"), Some(3.0));
    assert_eq!(count("idempotency_duplicate_age_seconds tombstone"), Some(20.0));
    assert_eq!(count("idempotency_duplicate_age_seconds in-doubt"), Some(7.0));
    assert_eq!(count("idempotency_possible_escapes_total old-key"), Some(1.0));
    assert_eq!(count("idempotency_possible_escapes_total in-doubt"), Some(1.0));
}

#[tokio::test]
async fn what_a_client_makes_of_its_key_fills_no_log() {
    let (log, _here) = Log::begin();
    let engine = Engine::new(MemoryStore::new(), Settings::default());
    let old = SystemClock.now().before(Duration::from_secs(100 * 86_400));
    drop(engine.claim(&Operation { key_time: Some(old), ..operation("old") }).await.unwrap());
    assert_eq!(log.at(Level::DEBUG).iter().filter(|line| line.contains("may have run before")).count(), 1);
    for level in [Level::INFO, Level::WARN, Level::ERROR] {
        assert_eq!(log.at(level), Vec::<String>::new());
    }
}

#[test]
fn a_key_that_is_too_old_tells_its_age() {
    let age = Duration::from_secs(5000);
    let limit = idempotency::AgeLimit {
        max_age: Duration::from_secs(1000),
        drift: Duration::from_secs(1),
        class: idempotency::KeyClass::new("uuid7"),
    };
    let life = Life::default().with_age(limit, idempotency::Lease::default()).unwrap();
    let counted = counted(async {
        let engine = Engine::new(MemoryStore::new(), Settings::default().life(life));
        let old = Operation { key_time: Some(SystemClock.now().before(age)), ..operation("old") };
        assert!(matches!(engine.claim(&old).await.unwrap(), Answer::DoNot(idempotency::Claimed::TooOld)));
    });
    let told = counted["idempotency_duplicate_age_seconds expired"];
    assert!((5000.0..5100.0).contains(&told), "{told}");
    assert!(!counted.contains_key("idempotency_possible_escapes_total old-key"));
}
