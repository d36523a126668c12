//! The ways in which a request reaches its work: through `run`, through the layer as HTTP, or with nothing in between.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::RETRY_AFTER;
use http::{Request, StatusCode};
use idempotency::{RunError, WorkError, run};
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::time::sleep;
use tower::ServiceExt as _;
use tower_idempotency::{IdempotencyLayer, Scope};

use super::{SimEngine, World, key_of, operation};

/// How work is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Door {
    /// By `run`.
    #[default]
    Run,
    /// By the layer.
    Layer,
    /// Not at all.
    Open,
}

/// What one request's work does, if it runs.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) before: Duration,
    pub(super) after: Duration,
    pub(super) ends: Ends,
    pub(super) value: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Ends {
    Done,
    NothingDone,
    Unknown,
}

impl Plan {
    pub(super) fn random(random: &mut StdRng) -> Self {
        let mut millis = || Duration::from_millis(random.random_range(0..1_500));
        let (before, after) = (millis(), millis());
        let ends = match random.random_range(0..10) {
            0 => Ends::NothingDone,
            1 => Ends::Unknown,
            _ => Ends::Done,
        };
        Self { before, after, ends, value: random.random() }
    }
}

/// What a client is told.
pub(super) enum Told {
    Ran(u64),
    Replayed(u64),
    InDoubt,
    InFlight,
    StoreError,
    WorkFailed,
    Otherwise(String),
}

impl World {
    /// One request, by the way that this world has.
    pub(super) async fn ask(self: &Arc<Self>, engine: &SimEngine, key: usize, plan: Plan) -> Told {
        match self.door {
            Door::Run => self.by_run(engine, key, plan).await,
            Door::Layer => self.by_layer(engine, key, plan).await,
            Door::Open => self.work(key, plan).await.map_or(Told::WorkFailed, Told::Ran),
        }
    }

    async fn work(&self, key: usize, plan: Plan) -> Result<u64, WorkError<io::Error>> {
        // Dropped half-way, nobody knows.
        self.unknown[key].store(true, Ordering::SeqCst);
        sleep(plan.before).await;
        if matches!(plan.ends, Ends::NothingDone) {
            return Err(WorkError::NothingDone(io::Error::other("not done")));
        }
        self.effects[key].fetch_add(1, Ordering::SeqCst);
        sleep(plan.after).await;
        if matches!(plan.ends, Ends::Unknown) {
            return Err(WorkError::Unknown(io::Error::other("unknown")));
        }
        Ok(plan.value)
    }

    async fn by_run(&self, engine: &SimEngine, key: usize, plan: Plan) -> Told {
        match run(engine, &operation(key), async |_| self.work(key, plan).await).await {
            Ok(ran) if ran.replayed => Told::Replayed(ran.value),
            Ok(ran) => Told::Ran(ran.value),
            Err(RunError::InDoubt(_)) => Told::InDoubt,
            Err(RunError::InFlight { .. }) => Told::InFlight,
            Err(RunError::Store(_)) => Told::StoreError,
            Err(RunError::Work(_)) => Told::WorkFailed,
            Err(error) => Told::Otherwise(error.to_string()),
        }
    }

    async fn by_layer(self: &Arc<Self>, engine: &SimEngine, key: usize, plan: Plan) -> Told {
        let world = Arc::clone(self);
        let handler = async move || answer(world.work(key, plan).await);
        let layer = IdempotencyLayer::with_engine(engine.clone(), Scope::global());
        let app = Router::new().route("/", post(handler)).layer(layer);
        let request = Request::post("/").header("idempotency-key", key_of(key));
        let request = request.body(Body::from("10 EUR")).unwrap();
        let Ok(response) = app.oneshot(request).await;
        told(response).await
    }
}

fn answer(worked: Result<u64, WorkError<io::Error>>) -> Response {
    match worked {
        Ok(value) => (StatusCode::CREATED, value.to_string()).into_response(),
        // Frees the key.
        Err(WorkError::NothingDone(_)) => StatusCode::TOO_MANY_REQUESTS.into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn told(response: Response) -> Told {
    let waits = response.headers().contains_key(RETRY_AFTER);
    let replayed = response.headers().contains_key("idempotent-replayed");
    match response.status() {
        StatusCode::CREATED => {
            let body = to_bytes(response.into_body(), 100).await.unwrap();
            let value = std::str::from_utf8(&body).unwrap().parse().unwrap();
            if replayed { Told::Replayed(value) } else { Told::Ran(value) }
        }
        StatusCode::CONFLICT if waits => Told::InFlight,
        StatusCode::CONFLICT => Told::InDoubt,
        // What was answered when nobody knew.
        StatusCode::INTERNAL_SERVER_ERROR if replayed => Told::InDoubt,
        StatusCode::SERVICE_UNAVAILABLE => Told::StoreError,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::INTERNAL_SERVER_ERROR => Told::WorkFailed,
        other => Told::Otherwise(other.to_string()),
    }
}
