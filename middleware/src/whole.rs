//! A response that is whole in memory, to be recorded by its effect's transaction.

use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::BodyExt as _;
use idempotency::transaction::Recordable;
use idempotency::{Attempt, Outcome};

use crate::layer::Config;
use crate::recording::recorded;

/// A response with its whole body, for a store's `commit(&attempt, transaction, response)`: it is recorded in the transaction that holds the
/// effect, and then sent.
///
/// Under an [`IdempotencyLayer`](crate::IdempotencyLayer) it is recorded as the layer records every response: the same headers, and
/// without its body above the layer's limit. Return what `commit` gives back: a handler that returns something else than what
/// is on record by then is not listened to, and its client gets what is on record. It is made from an `http::Response` of bytes, and is one again by
/// [`into_response`](Self::into_response); with the feature `axum`, handlers return it as it is.
///
/// ```
/// use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
/// use idempotency::{Engine, Life, Recovery, Settings};
/// use idempotency_sqlx::SqliteStore;
/// use tower::ServiceExt as _;
/// use tower_idempotency::{CurrentAttempt, IdempotencyLayer, Scope, WholeResponse};
///
/// async fn charge(
///     State(store): State<SqliteStore>,
///     CurrentAttempt(attempt): CurrentAttempt,
/// ) -> Result<WholeResponse, StatusCode> {
///     let mut transaction = store.begin(&attempt).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
///     let charged = sqlx::query("INSERT INTO charges (amount) VALUES (10)").execute(&mut *transaction);
///     charged.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
///     let response = WholeResponse::json(StatusCode::CREATED, &serde_json::json!({ "charged": 10 }));
///     let response = response.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
///     store.commit(&attempt, transaction, response).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let url = format!("sqlite:{}", folder.path().join("shop.sqlite").display());
/// SqliteStore::migrate(&url).await?;
/// # use sqlx::Connection as _;
/// # let mut connection = sqlx::SqliteConnection::connect(&url).await?;
/// # sqlx::query("CREATE TABLE charges (amount INTEGER) STRICT").execute(&mut connection).await?;
/// let store = SqliteStore::open(&url).await?;
/// // Nothing of an attempt that ended stays, so it may run again.
/// let settings = Settings::default().life(Life::new(Recovery::Rerun, Default::default()));
/// let layer = IdempotencyLayer::with_engine(Engine::new(store.clone(), settings), Scope::global());
/// let app = Router::new().route("/charge", post(charge)).layer(layer).with_state(store);
/// for _ in 0..2 {
///     let request = http::Request::post("/charge").header("Idempotency-Key", "k1").body(axum::body::Body::empty())?;
///     assert_eq!(app.clone().oneshot(request).await?.status(), StatusCode::CREATED);
/// }
/// # let charges: i64 = sqlx::query_scalar("SELECT count(*) FROM charges").fetch_one(&mut connection).await?;
/// # assert_eq!(charges, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct WholeResponse(Response<Bytes>);

impl WholeResponse {
    /// This response.
    #[must_use]
    pub fn new<B: Into<Bytes>>(response: Response<B>) -> Self {
        Self(response.map(Into::into))
    }

    /// A response with this value as JSON.
    ///
    /// # Errors
    /// When the value cannot be written as JSON.
    pub fn json<T: serde::Serialize>(status: http::StatusCode, value: &T) -> Result<Self, serde_json::Error> {
        let mut response = Response::new(Bytes::from(serde_json::to_vec(value)?));
        *response.status_mut() = status;
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        Ok(Self(response))
    }

    /// Reads a response to its end. Trailers are lost.
    ///
    /// # Errors
    /// What its body ended with.
    pub async fn read<B: Body>(response: Response<B>) -> Result<Self, B::Error> {
        let (parts, body) = response.into_parts();
        Ok(Self(Response::from_parts(parts, body.collect().await?.to_bytes())))
    }

    /// The response.
    #[must_use]
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        self.0.map(B::from)
    }
}

impl Recordable for WholeResponse {
    fn outcome(&self, attempt: &Attempt) -> Outcome {
        match attempt.attached::<Config>() {
            Some(config) => {
                let outcome = config.outcome(self.0.status(), self.0.headers(), self.0.body());
                if self.0.body().len() > config.max_response { outcome.without_payload() } else { outcome }
            }
            // Outside of a layer: a queue consumer that records for one.
            None => recorded(self.0.clone()),
        }
    }

    fn on_record(mut self) -> Self {
        self.0.extensions_mut().insert(OnRecord);
        self
    }
}

/// In the extensions of the response that a commit gave back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnRecord;

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for WholeResponse {
    fn into_response(self) -> axum::response::Response {
        self.0.map(axum::body::Body::from)
    }
}
