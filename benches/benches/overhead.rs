//! What the layer adds to a request, in process: no key, first request, replay, conflict, over each store, as ratios to the bare
//! service in one run. `cargo bench -p idempotency-benches --bench overhead`; `-- --quick` runs it for a moment, and
//! `-- --count first 10000` just one row, for a profiler (see the README).
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

#[path = "work/ask.rs"]
mod ask;
#[path = "work/charge.rs"]
mod charge;

use std::sync::Arc;

use ask::{request, send};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use charge::app;
use idempotency::{Engine, Settings, Store};
use idempotency_benches::{Quartiles, Subject, compare, table, timed};
use idempotency_memory::{MemoryStore, NearCache};
use idempotency_redis::RedisStore;
use idempotency_sqlx::SqliteStore;
use idempotency_testbed::servers::Redis;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tower_idempotency::{IdempotencyLayer, Scope};

/// Requests of one kind to one service. They are made before they are timed, in every row.
struct Row {
    name: &'static str,
    app: Router,
    key: Key,
    expected: StatusCode,
}

enum Key {
    None,
    New(u64),
    Same(&'static str),
}

impl Row {
    const fn new(name: &'static str, app: Router, key: Key, expected: StatusCode) -> Self {
        Self { name, app, key, expected }
    }

    fn requests(&mut self, n: u32) -> Vec<Request<Body>> {
        let next = || match &mut self.key {
            Key::None => request(None),
            Key::New(last) => {
                *last += 1;
                request(Some(&format!("first-{last}")))
            }
            Key::Same(key) => request(Some(key)),
        };
        std::iter::repeat_with(next).take(n as usize).collect()
    }

    async fn send(&self, requests: Vec<Request<Body>>) {
        for request in requests {
            send(&self.app, request, self.expected).await;
        }
    }

    /// Once before it counts, so that there is something to be replayed.
    async fn warm_up(&mut self) {
        let first = self.requests(1);
        self.send(first).await;
    }

    fn subject<'r>(mut self, store: &str, n: u32, runtime: &'r Runtime) -> Subject<'r> {
        let name = if store.is_empty() { self.name.to_owned() } else { format!("{store}: {}", self.name) };
        runtime.block_on(self.warm_up());
        Subject::new(&name, n, runtime, async move |n| {
            let requests = self.requests(n);
            timed(self.send(requests)).await
        })
    }
}

fn bare() -> Row {
    Row::new("bare", app(), Key::None, StatusCode::CREATED)
}

/// The four requests of a protected service, over one store.
fn rows<St: Store>(store: St, runtime: &Runtime) -> [Row; 4] {
    let engine = Engine::new(store, Settings::default());
    let layer = IdempotencyLayer::with_engine(engine.clone(), Scope::global());
    let app = app().layer(layer);

    // The same request is in flight for as long as the bench runs.
    let begun = Arc::new(Notify::new());
    let begins = Arc::clone(&begun);
    let slow = Router::new().route(
        "/charge",
        post(async move || {
            begins.notify_one();
            std::future::pending::<StatusCode>().await
        }),
    );
    let slow = slow.layer(IdempotencyLayer::with_engine(engine, Scope::global()));
    runtime.spawn(async move { send(&slow, request(Some("conflict")), StatusCode::CREATED).await });
    runtime.block_on(begun.notified());

    [
        Row::new("no key", app.clone(), Key::None, StatusCode::CREATED),
        Row::new("first request", app.clone(), Key::New(0), StatusCode::CREATED),
        Row::new("replay", app.clone(), Key::Same("replayed"), StatusCode::CREATED),
        Row::new("conflict", app, Key::Same("conflict"), StatusCode::CONFLICT),
    ]
}

/// How many requests there are at once, in process.
const ROUND: u32 = 4000;

/// Runs one row for whoever counts instructions: a profiler that is told this function's name counts nothing else.
#[inline(never)]
fn counted(row: &Row, requests: Vec<Request<Body>>, runtime: &Runtime) {
    runtime.block_on(row.send(requests));
}

/// `--count ROW N`, the row by its name or the beginning of it.
fn count(runtime: &Runtime) -> Option<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--count").skip(1);
    let (name, n) = (arguments.next()?, arguments.next()?.parse::<u32>().unwrap());
    let rows = rows(MemoryStore::new(), runtime);
    let mut row = std::iter::once(bare()).chain(rows).find(|row| row.name.starts_with(&name)).unwrap();
    runtime.block_on(row.warm_up());
    for begun in (0..n).step_by(ROUND as usize) {
        let requests = row.requests((n - begun).min(ROUND));
        counted(&row, requests, runtime);
    }
    println!("{n} times: {}", row.name);
    Some(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if count(&runtime).is_some() {
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, in_process, durable) = if quick { (3, 100, 10) } else { (41, ROUND, 200) };
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("bench.sqlite").display());
    let sqlite = runtime.block_on(async {
        SqliteStore::migrate(&url).await.unwrap();
        SqliteStore::open(&url).await.unwrap()
    });
    let server = Redis::start();
    let near = NearCache::new(runtime.block_on(RedisStore::open(&server.url())).unwrap());

    let mut all = vec![bare().subject("", in_process, &runtime)];
    all.extend(rows(MemoryStore::new(), &runtime).map(|row| row.subject("in process", in_process, &runtime)));
    all.extend(rows(sqlite, &runtime).map(|row| row.subject("SQLite, durable", durable, &runtime)));
    all.extend(rows(near, &runtime).map(|row| row.subject("Redis under a near cache", durable, &runtime)));
    let compared = compare(rounds, &mut all);
    println!("{}", table(&compared));
    let row = |name: &str| compared.iter().find(|row| row.name == name).unwrap();
    let Quartiles { low, median, high } = row("Redis under a near cache: replay").against(row("in process: replay"));
    println!("A replay from the near cache: {median:.2}x ({low:.2}-{high:.2}) of one in process.");
}
