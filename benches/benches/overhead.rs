//! What the layer adds to a request, in process: no key, first request, replay, conflict, over each store, as ratios to the bare
//! service in one run. `cargo bench -p idempotency-benches --bench overhead`; `-- --quick` runs it for a moment, and
//! `-- --count "in process: first request" 10000` just one row, for a profiler (see the README).
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

#[path = "work/ask.rs"]
mod ask;
#[path = "work/charge.rs"]
mod charge;

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use ask::{request, send, send_all, time_of};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response, StatusCode};
use axum::routing::post;
use charge::app;
use idempotency::{Engine, Settings, Store};
use idempotency_benches::{Quartiles, Subject, compare, table};
use idempotency_memory::{MemoryStore, NearCache};
use idempotency_redis::RedisStore;
use idempotency_sqlx::SqliteStore;
use idempotency_testbed::servers::Redis;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tower::{Layer as _, Service};
use tower_idempotency::{Idempotency, IdempotencyLayer, Scope};

/// Requests of one kind to one service. They are made before they are timed, in every row.
struct Row {
    name: String,
    send: Box<SendAll>,
    key: Key,
}

type SendAll = dyn Fn(Vec<Request<Body>>) -> Pin<Box<dyn Future<Output = ()>>>;

enum Key {
    None,
    New(u64),
    Same(&'static str),
}

impl Key {
    /// The next request with such a key.
    fn request(&mut self) -> Request<Body> {
        match self {
            Self::None => request(None),
            Self::New(last) => {
                *last += 1;
                request(Some(&format!("first-{last}")))
            }
            Self::Same(key) => request(Some(key)),
        }
    }
}

impl Row {
    fn new<S, B>(name: &str, service: S, key: Key, expected: StatusCode) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>, Error: Debug> + Clone + 'static,
        B: HttpBody<Error: Debug>,
    {
        let send = move |requests| {
            let service = service.clone();
            Box::pin(async move { send_all(&service, requests, expected).await }) as Pin<Box<dyn Future<Output = ()>>>
        };
        Self { name: name.to_owned(), send: Box::new(send), key }
    }

    /// Once before it counts, so that there is something to be replayed.
    fn warm_up(&mut self, runtime: &Runtime) {
        runtime.block_on((self.send)(vec![self.key.request()]));
    }

    fn subject(mut self, n: u32, runtime: &Runtime) -> Subject<'_> {
        self.warm_up(runtime);
        let Self { name, send, mut key } = self;
        Subject::new(&name, n, runtime, async move |n| {
            time_of(n, || key.request(), async |requests| send(requests).await).await
        })
    }
}

fn bare() -> Row {
    Row::new("bare", app(), Key::None, StatusCode::CREATED)
}

/// The four requests of a service that is protected as `mount` says, over one store.
fn rows<St, S, B>(
    name: &str,
    store: St,
    runtime: &Runtime,
    mount: impl Fn(IdempotencyLayer<St>, Router) -> S,
) -> [Row; 4]
where
    St: Store,
    S: Service<Request<Body>, Response = Response<B>, Error: Debug> + Clone + 'static,
    B: HttpBody<Error: Debug>,
{
    let engine = Engine::new(store, Settings::default());
    let layer = || IdempotencyLayer::with_engine(engine.clone(), Scope::global());
    let service = mount(layer(), app());

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
    let slow = slow.layer(layer());
    runtime.spawn(async move { send(&slow, request(Some("conflict")), StatusCode::CREATED).await });
    runtime.block_on(begun.notified());

    let row = |what, key, expected| Row::new(&format!("{name}: {what}"), service.clone(), key, expected);
    [
        row("no key", Key::None, StatusCode::CREATED),
        row("first request", Key::New(0), StatusCode::CREATED),
        row("replay", Key::Same("replayed"), StatusCode::CREATED),
        row("conflict", Key::Same("conflict"), StatusCode::CONFLICT),
    ]
}

/// As axum's users do it: each route of the router is protected.
fn inside<St: Store>(layer: IdempotencyLayer<St>, router: Router) -> Router {
    router.layer(layer)
}

/// As with any tower service: what axum adds to each layer of a route is not there.
fn around<St: Store>(layer: IdempotencyLayer<St>, router: Router) -> Idempotency<Router, St> {
    layer.layer(router)
}

/// The rows of the store in process, by which the layer itself is judged.
fn in_process(runtime: &Runtime) -> impl Iterator<Item = Row> {
    let around = rows("in process, around the router", MemoryStore::new(), runtime, around);
    around.into_iter().chain(rows("in process", MemoryStore::new(), runtime, inside))
}

/// Runs one row for whoever counts instructions: a profiler that is told this function's name counts nothing else.
#[inline(never)]
fn counted(row: &Row, request: Request<Body>, runtime: &Runtime) {
    runtime.block_on((row.send)(vec![request]));
}

/// `--count ROW N`, the row by its name.
fn count(runtime: &Runtime) -> Option<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--count").skip(1);
    let (name, n) = (arguments.next()?, arguments.next()?.parse::<u32>().unwrap());
    let mut row = std::iter::once(bare()).chain(in_process(runtime)).find(|row| row.name == name).unwrap();
    row.warm_up(runtime);
    for _ in 0..n {
        let request = row.key.request();
        counted(&row, request, runtime);
    }
    println!("{n} times: {name}");
    Some(())
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if count(&runtime).is_some() {
        return;
    }
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, many, durable) = if quick { (3, 100, 10) } else { (41, 4000, 200) };
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("bench.sqlite").display());
    let sqlite = runtime.block_on(async {
        SqliteStore::migrate(&url).await.unwrap();
        SqliteStore::open(&url).await.unwrap()
    });
    let server = Redis::start();
    let near = NearCache::new(runtime.block_on(RedisStore::open(&server.url())).unwrap());

    let mut all = vec![bare().subject(many, &runtime)];
    all.extend(in_process(&runtime).map(|row| row.subject(many, &runtime)));
    all.extend(rows("SQLite, durable", sqlite, &runtime, inside).map(|row| row.subject(durable, &runtime)));
    all.extend(rows("Redis under a near cache", near, &runtime, inside).map(|row| row.subject(durable, &runtime)));
    let compared = compare(rounds, &mut all);
    println!("{}", table(&compared));
    let row = |name: &str| compared.iter().find(|row| row.name == name).unwrap();
    let Quartiles { low, median, high } = row("Redis under a near cache: replay").against(row("in process: replay"));
    println!("A replay from the near cache: {median:.2}x ({low:.2}-{high:.2}) of one in process.");
}
