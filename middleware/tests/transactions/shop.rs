//! A shop whose charges are rows of the store's own file, and a layer around its one handler.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency::faults::FaultyStore;
use idempotency::time::ManualClock;
use idempotency::transaction::{self, BeginError, CommitError, TransactionalStore as _};
use idempotency::{Attempt, Engine, Life, Recovery, Settings, State, Store as _, Windows};
use idempotency_sqlx::{SqliteStore, SqliteTransaction};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tempfile::TempDir;
use tower_idempotency::{CurrentAttempt, IdempotencyLayer, Scope, WholeResponse};

use crate::common::{Answer, Runs, START, charge, record_id, send};

pub(crate) type ShopStore = FaultyStore<SqliteStore>;

pub(crate) const RECOVERIES: [Recovery; 2] = [Recovery::Hold, Recovery::Rerun];
/// Longer than a lease.
pub(crate) const LEASE_OVER: Duration = Duration::from_secs(31);

#[derive(Clone)]
pub(crate) struct Shop {
    folder: std::sync::Arc<TempDir>,
    pub(crate) clock: ManualClock,
    pub(crate) store: ShopStore,
    pub(crate) engine: Engine<ShopStore>,
    pub(crate) runs: Runs,
}

impl Shop {
    pub(crate) async fn new(recovery: Recovery) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new().filename(folder.path().join("shop.sqlite")).create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql("CREATE TABLE charges (run INTEGER) STRICT").execute(&mut connection).await.unwrap();
        let clock = ManualClock::new(START);
        let url = format!("sqlite:{}", folder.path().join("shop.sqlite").display());
        let options = SqliteStore::options(&url).clock(clock.clone()).busy_timeout(Duration::from_secs(20));
        options.clone().migrate().await.unwrap();
        let store = FaultyStore::new(options.open().await.unwrap());
        // Its own clock decides how long a commit's answer is waited for.
        let settings = Settings::default().life(Life::new(recovery, Windows::default())).without_renewal();
        let engine = Engine::new(store.clone(), settings);
        Self { folder: folder.into(), clock, store, engine, runs: Runs::default() }
    }

    pub(crate) fn layer(&self) -> IdempotencyLayer<ShopStore> {
        IdempotencyLayer::with_engine(self.engine.clone(), Scope::global())
    }

    /// Behind the usual layer.
    pub(crate) fn app<R, A>(&self, handler: impl Fn(Self, Attempt) -> A + Clone + Send + Sync + 'static) -> Router
    where
        R: IntoResponse,
        A: Future<Output = R> + Send + 'static,
    {
        self.app_in(self.layer(), handler)
    }

    pub(crate) fn app_in<R, A>(
        &self,
        layer: IdempotencyLayer<ShopStore>,
        handler: impl Fn(Self, Attempt) -> A + Clone + Send + Sync + 'static,
    ) -> Router
    where
        R: IntoResponse,
        A: Future<Output = R> + Send + 'static,
    {
        let shop = self.clone();
        let charge = move |CurrentAttempt(attempt): CurrentAttempt| {
            shop.runs.begin();
            handler(shop.clone(), attempt)
        };
        Router::new().route("/charge", post(charge)).layer(layer)
    }

    pub(crate) async fn try_begin(&self, attempt: &Attempt) -> Result<SqliteTransaction, BeginError> {
        transaction::begin(&self.store, attempt, async |opening| self.store.open_transaction(opening).await).await
    }

    /// Begins, and charges.
    pub(crate) async fn begin(&self, attempt: &Attempt) -> SqliteTransaction {
        let mut transaction = self.try_begin(attempt).await.unwrap();
        self.charge(&mut transaction).await;
        transaction
    }

    pub(crate) async fn charge(&self, transaction: &mut SqliteTransaction) {
        let insert = sqlx::query("INSERT INTO charges VALUES (?1)").bind(i64::try_from(self.runs.count()).unwrap());
        insert.execute(&mut **transaction).await.unwrap();
    }

    pub(crate) async fn commit(
        &self,
        attempt: &Attempt,
        transaction: SqliteTransaction,
    ) -> Result<WholeResponse, CommitError> {
        transaction::commit(&self.store, attempt, transaction, self.charged(attempt)).await
    }

    /// What a handler says that does nothing else.
    pub(crate) async fn charge_once(self, attempt: Attempt) -> Response {
        let transaction = self.begin(&attempt).await;
        match self.commit(&attempt, transaction).await {
            Ok(response) => response.into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }

    pub(crate) fn charged(&self, attempt: &Attempt) -> WholeResponse {
        WholeResponse::json(StatusCode::CREATED, &serde_json::json!({ "run": attempt.number() })).unwrap()
    }

    async fn connection(&self) -> SqliteConnection {
        let file = self.folder.path().join("shop.sqlite");
        SqliteConnectOptions::new().filename(file).connect().await.unwrap()
    }

    pub(crate) async fn charges(&self) -> u32 {
        let count = sqlx::query_scalar("SELECT count(*) FROM charges");
        count.fetch_one(&mut self.connection().await).await.unwrap()
    }

    pub(crate) async fn state(&self) -> Option<State> {
        self.store.inner().inspect(&record_id("k")).await.unwrap().map(|entry| entry.state)
    }

    pub(crate) async fn until(&self, state: State) {
        let reached = async {
            while self.state().await != Some(state) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("never {state:?}"));
    }

    /// The key is free, nothing stays, and a handler that works runs.
    pub(crate) async fn assert_runs_again(&self) {
        assert_eq!((self.state().await, self.charges().await), (Some(State::Released), 0));
        self.store.heal();
        let again = send(&self.app(Self::charge_once), charge("k")).await;
        assert_eq!((again.status, again.is_replay()), (201, false));
        assert_eq!(self.charges().await, 1);
    }

    /// One charge, and whoever asks gets this answer.
    pub(crate) async fn assert_replays(&self, status: u16, text: &str) {
        let runs = self.runs.count();
        let replay = send(&self.app(Self::charge_once), charge("k")).await;
        assert_eq!((replay.status, replay.text(), replay.is_replay()), (status, text, true));
        assert_eq!((self.runs.count(), self.charges().await), (runs, 1));
    }
}

pub(crate) async fn post_to(app: &Router) -> Answer {
    send(app, charge("k")).await
}

#[track_caller]
pub(crate) fn assert_retryable_503(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (503, Some("store-unavailable")));
    let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait));
}

/// The same request, for a client that does not wait.
pub(crate) fn request() -> http::Request<Body> {
    charge("k")
}
