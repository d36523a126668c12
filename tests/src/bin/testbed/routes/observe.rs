//! `/health` and `/metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use idempotency::{RecordId, Store as _};
use tokio::time::timeout;

use crate::app::App;
use crate::problem::Problem;

/// Asks the store for a record that nobody has.
pub(crate) async fn health(State(app): State<App>) -> Result<&'static str, Problem> {
    let nobodys = RecordId::from_bytes([0; 32]);
    let asked = timeout(app.engine.settings().store_timeout_setting(), app.engine.store().inspect(&nobodys));
    match asked.await {
        Ok(Ok(_)) => Ok("ok\n"),
        Ok(Err(error)) => Err(Problem::store(&error)),
        Err(elapsed) => Err(Problem::store(&elapsed)),
    }
}

pub(crate) async fn metrics(State(app): State<App>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render())
}
