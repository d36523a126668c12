//! A layer under test: its store, whose clock stands still and which misbehaves on command, handlers that count
//! their runs, and what clients see of the answers.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use idempotency::faults::FaultyStore;
use idempotency::time::ManualClock;
use idempotency::{Key, RecordId, ScopeId, State, Store as _, Timestamp};
use idempotency_memory::MemoryStore;
use tower::{Service, ServiceExt as _};
use tower_idempotency::{IdempotencyLayer, Refusal, Scope};

pub(crate) type TestStore = FaultyStore<MemoryStore<ManualClock>>;

pub(crate) const KEY: &str = "Idempotency-Key";
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);
/// What the store's clock shows at first: 2027-01-15T08:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// A store, its clock, and a count of runs.
pub(crate) struct Rig {
    pub(crate) clock: ManualClock,
    pub(crate) store: TestStore,
    pub(crate) runs: Runs,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(usize::MAX)
    }

    /// With a store of at most so many records.
    pub(crate) fn with(max_records: usize) -> Self {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(clock.clone()).max_records(max_records).build();
        Self { clock, store: FaultyStore::new(store), runs: Runs::default() }
    }

    /// A layer with the default settings, in one scope.
    pub(crate) fn layer(&self) -> IdempotencyLayer<TestStore> {
        IdempotencyLayer::new(self.store.clone(), Scope::global())
    }

    /// A router inside `layer` that answers any method and path with what `answer` makes of the run's number, from 1.
    pub(crate) fn app<R: IntoResponse>(
        &self,
        layer: IdempotencyLayer<TestStore>,
        answer: impl Fn(usize) -> R + Clone + Send + Sync + 'static,
    ) -> Router {
        self.handler(answer).layer(layer)
    }

    /// The same without a layer around it.
    pub(crate) fn handler<R: IntoResponse>(
        &self,
        answer: impl Fn(usize) -> R + Clone + Send + Sync + 'static,
    ) -> Router {
        let runs = self.runs.clone();
        Router::new().fallback(move || {
            let run = runs.begin();
            async move { answer(run) }
        })
    }

    /// A router inside `layer` that says which run it was, with 201.
    pub(crate) fn counting(&self, layer: IdempotencyLayer<TestStore>) -> Router {
        self.app(layer, |run| (http::StatusCode::CREATED, format!("run {run}")))
    }

    /// How many records the store holds.
    pub(crate) fn records(&self) -> usize {
        self.store.inner().len()
    }

    /// The state of a key in the global scope.
    pub(crate) async fn state(&self, key: &str) -> Option<State> {
        self.store.inner().inspect(&record_id(key)).await.unwrap().map(|entry| entry.state)
    }

    /// Waits, in the runtime's time, until a key of the global scope is in this state.
    pub(crate) async fn until(&self, key: &str, state: State) {
        for _ in 0..10_000 {
            if self.state(key).await == Some(state) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{key} is {:?} and never became {state:?}", self.state(key).await);
    }
}

pub(crate) fn record_id(key: &str) -> RecordId {
    RecordId::new(&ScopeId::global(), &Key::parse(key).unwrap())
}

/// Counts the runs of a handler.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// A run begins: its number, from 1.
    pub(crate) fn begin(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// `POST /charge` of an amount of 10 under this key.
pub(crate) fn charge(key: &str) -> Request<Body> {
    charge_of(key, 10)
}

/// `POST /charge` of another amount.
pub(crate) fn charge_of(key: &str, amount: u32) -> Request<Body> {
    let body = Body::from(format!("{{\"amount\":{amount}}}"));
    Request::post("/charge").header(KEY, key).header("Content-Type", "application/json").body(body).unwrap()
}

/// Sends a request and reads the answer to its end.
pub(crate) async fn send<S, B>(app: &S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug> + Clone,
    B: http_body::Body<Data = Bytes, Error: Debug>,
{
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let collected = body.collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        extensions: parts.extensions,
        body: collected.to_bytes(),
        trailers,
    }
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Whether it says that it is a replay.
    pub(crate) fn is_replay(&self) -> bool {
        self.header("Idempotent-Replayed") == Some("true")
    }

    /// The last segment of the problem's type; none when the layer did not refuse.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        self.extensions.get::<Refusal>().map(Refusal::problem_type)
    }
}
