//! What the layer's trace writer writes is what the tuner reads: times, keys, sizes, routes, scopes, and how long it took.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use idempotency::Timestamp;
use idempotency::time::Clock;
use idempotency::trace::{TraceOptions, TraceSecret, TraceWriter};
use idempotency_memory::MemoryStore;
use idempotency_window::{Arrival, Grid, Pass, Reader, Settings, Unrecorded};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep, sleep_until};
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Scope};

/// The runtime's time, which is paused and begins at [`BEGIN`].
#[derive(Clone)]
struct RuntimeClock(Instant);

/// 2026-01-01, and some microseconds, which must not get lost.
const BEGIN: i64 = 1_767_225_600_000_789;

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(BEGIN).after(self.0.elapsed())
    }
}

/// A request, and what its handler does if it runs. No two happen at one time: requests come at even milliseconds, and handlers end at odd ones.
#[derive(Clone, Copy, Debug)]
struct Order {
    at: u64,
    tenant: u32,
    key: u32,
    takes: u64,
    answers: usize,
    fails: bool,
}

/// A line of the trace, with names in the place of hashes, and the length of a body instead of what is recorded around it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    time: i64,
    key: (u32, u32),
    body: usize,
    route: &'static str,
    took: i64,
}

#[derive(Clone, Copy)]
enum Record {
    Runs { until: u64, leaves: Option<usize> },
    Holds(usize),
}

fn orders() -> Vec<Order> {
    let mut random = StdRng::seed_from_u64(6);
    let mut at = 0;
    let order = |_| {
        at += 2 * random.random_range(1..150);
        Order {
            at,
            tenant: random.random_range(0..3),
            key: random.random_range(0..120),
            takes: 1 + 2 * random.random_range(0..2_000),
            // Lengths that are written with as many bytes each, in the head and around it.
            answers: random.random_range(200..1_000),
            fails: random.random_ratio(1, 5),
        }
    };
    (0..2_000).map(order).collect()
}

/// What a trace of these requests says.
fn expected(orders: &[Order]) -> Vec<Line> {
    let mut records = HashMap::<(u32, u32), Record>::new();
    let line = |order: &Order| {
        let key = (order.tenant, order.key);
        let record = match records.get(&key) {
            Some(&Record::Runs { until, leaves }) if until < order.at => leaves.map(Record::Holds),
            record => record.copied(),
        };
        let (record, body, took) = match record {
            None => {
                let leaves = (!order.fails).then_some(order.answers);
                (Record::Runs { until: order.at + order.takes, leaves }, leaves.unwrap_or(0), order.takes)
            }
            Some(runs @ Record::Runs { .. }) => (runs, 0, 0),
            Some(holds @ Record::Holds(body)) => (holds, body, 0),
        };
        records.insert(key, record);
        let micros = |millis: u64| i64::try_from(millis).unwrap() * 1000;
        Line { time: BEGIN + micros(order.at), key, body, route: pattern(order.key).1, took: micros(took) }
    };
    orders.iter().map(line).collect()
}

/// A path of this key, and what is traced of it.
fn pattern(key: u32) -> (String, &'static str) {
    match key % 2 {
        0 => (format!("/orders/{key}/charge"), "POST /orders/{order}/charge"),
        _ => ("/refunds".to_owned(), "POST /refunds"),
    }
}

/// What two services that share a store write, one behind the other.
async fn written(orders: &[Order], options: impl Fn() -> TraceOptions) -> String {
    let folder = tempfile::tempdir().unwrap();
    let clock = RuntimeClock(Instant::now());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let path = |service: usize| folder.path().join(format!("{service}.csv"));
    let writers = [0, 1].map(|service| options().clock(clock.clone()).create(path(service)).unwrap());
    let apps = writers.each_ref().map(|writer| {
        let scope = Scope::header(HeaderName::from_static("tenant"));
        let layer = IdempotencyLayer::new(store.clone(), scope).trace(writer.route("elsewhere"));
        let router = Router::new().route("/orders/{order}/charge", post(handler)).route("/refunds", post(handler));
        router.layer(layer)
    });
    let mut requests = Vec::new();
    for (n, order) in orders.iter().copied().enumerate() {
        let app = apps[n % 2].clone();
        let at = clock.0 + Duration::from_millis(order.at);
        requests.push(tokio::spawn(async move {
            sleep_until(at).await;
            drop(app.oneshot(request(&order)).await.unwrap());
        }));
    }
    for request in requests {
        request.await.unwrap();
    }
    writers.iter().for_each(TraceWriter::flush);
    assert!(writers.iter().all(|writer| writer.dropped() == 0));
    [0, 1].map(|service| fs::read_to_string(path(service)).unwrap()).concat()
}

fn request(order: &Order) -> Request<Body> {
    let request = Request::post(pattern(order.key).0)
        .header("idempotency-key", format!("key-{:04}", order.key))
        .header("tenant", format!("tenant-{}", order.tenant))
        .header("takes", order.takes)
        .header("answers", order.answers)
        .header("fails", u16::from(order.fails));
    request.body(Body::empty()).unwrap()
}

async fn handler(headers: HeaderMap) -> (StatusCode, String) {
    let number = |name: &str| headers[name].to_str().unwrap().parse::<usize>().unwrap();
    sleep(Duration::from_millis(number("takes").try_into().unwrap())).await;
    // 429 is not recorded, and the next request of the key runs.
    let status = if number("fails") == 1 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::CREATED };
    (status, "x".repeat(number("answers")))
}

/// A line as the tuner reads it: time, key, size, route, scope, took.
type Read = (i64, String, u32, String, String, i64);

fn read(trace: &str, unrecorded: Unrecorded) -> (Vec<Read>, u64) {
    let mut lines = Vec::new();
    let mut reader = Reader::new(trace.as_bytes(), i64::MAX, unrecorded).unwrap();
    let all = reader.read(|&Arrival { time, key, size, route, scope, took }| {
        lines.push((time, key.to_owned(), size, route.to_owned(), scope.to_owned(), took));
        Ok(())
    });
    all.unwrap();
    (lines, reader.skipped())
}

fn options() -> TraceOptions {
    TraceWriter::options().secret(TraceSecret::from_bytes(&[7; 32]))
}

#[tokio::test(start_paused = true)]
async fn the_tuner_reads_what_the_layer_wrote() {
    let orders = orders();
    let trace = written(&orders, options).await;
    let (lines, _) = read(&trace, Unrecorded::Count);
    let expected = expected(&orders);
    assert_eq!(lines.len(), expected.len());

    // Head and envelope of a response, which are as long for all of them.
    let around = usize::try_from(lines[0].2).unwrap() - expected[0].body;
    assert!((1..500).contains(&around), "{around} bytes beside the body");
    let (mut hashes, mut names, mut scopes) = (HashMap::new(), HashMap::new(), HashMap::new());
    for ((time, key, size, route, scope, took), expected) in lines.iter().zip(&expected) {
        let size = usize::try_from(*size).unwrap();
        let body = if size == 0 { 0 } else { size - around };
        assert_eq!((*time, body, route.as_str(), *took), (expected.time, expected.body, expected.route, expected.took));
        // One hash for each name, and one name for each hash.
        assert_eq!(scopes.entry(expected.key.0).or_insert(scope), &scope);
        assert_eq!(hashes.entry(expected.key).or_insert((key, scope)), &(key, scope));
        assert_eq!(names.entry((key, scope)).or_insert(expected.key), &expected.key);
    }
    assert_eq!(lines.iter().map(|line| &line.4).collect::<HashSet<_>>().len(), 3);
    assert!(!trace.contains("key-") && !trace.contains("tenant-"));

    // What was seen shows something.
    let mut seen = BTreeMap::new();
    for line in &expected {
        *seen.entry((line.took > 0, line.body > 0)).or_insert(0) += 1;
    }
    // Failed and recorded; refused and replayed.
    assert!(seen.len() == 4 && seen.values().all(|count| *count >= 10), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_sample_is_read_as_the_lines_of_its_keys() {
    let orders = orders();
    let all = read(&written(&orders, options).await, Unrecorded::Count).0;
    let sample = read(&written(&orders, || options().sample(0.3).unwrap()).await, Unrecorded::Count).0;
    let keys: HashSet<&str> = sample.iter().map(|line| line.1.as_str()).collect();
    // Of 360 keys, 8.7 is a standard deviation.
    assert!((65..152).contains(&keys.len()), "{} keys in a sample of 0.3", keys.len());
    let of_sample: Vec<&Read> = all.iter().filter(|line| keys.contains(line.1.as_str())).collect();
    assert_eq!(sample.iter().collect::<Vec<_>>(), of_sample);
}

#[tokio::test(start_paused = true)]
async fn hashes_change_none_of_the_figures() {
    let orders = orders();
    let trace = written(&orders, options).await;
    let expected = expected(&orders);
    let grid = || Grid::of([1, 10, 60, 300, 1800].map(|seconds| seconds * 1_000_000).to_vec()).unwrap();
    let pass = || Pass::new(Settings { grid: grid(), ..Settings::default() });
    let (mut by_hash, mut by_name) = (pass(), pass());
    Reader::new(trace.as_bytes(), i64::MAX, Unrecorded::Count)
        .unwrap()
        .read(|arrival| {
            by_hash.add(arrival).unwrap();
            Ok(())
        })
        .unwrap();
    for line in &expected {
        let (key, scope) = (line.key.1.to_string(), line.key.0.to_string());
        let arrival =
            Arrival { time: line.time, key: &key, size: 1, route: line.route, scope: &scope, took: line.took };
        by_name.add(&arrival).unwrap();
    }
    let (by_hash, by_name) = (by_hash.finish().unwrap(), by_name.finish().unwrap());
    assert_eq!((by_hash.arrivals, by_hash.operations), (2_000, by_name.operations));
    for (hash, name) in by_hash.windows.iter().zip(&by_name.windows) {
        assert_eq!(hash.tallies.each_ref().map(|tally| tally.all), name.tallies.each_ref().map(|tally| tally.all));
    }
    assert!(by_hash.windows[0].tallies[0].all.escapes > 1000, "short windows forget");

    // What ran and left nothing, and what was refused before anything was recorded of its key, is left out on request.
    let mut recorded = HashSet::new();
    let left_out = expected.iter().filter(|line| {
        recorded.extend((line.body > 0).then_some(line.key));
        line.body == 0 && (line.took > 0 || !recorded.contains(&line.key))
    });
    assert_eq!(read(&trace, Unrecorded::Skip).1, left_out.count() as u64);
}
