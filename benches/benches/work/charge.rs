//! The handler that layers are measured around: about 200 bytes of JSON, read and answered.

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Charge {
    amount: u64,
    currency: String,
    from: String,
    to: String,
    reference: String,
}

async fn charge(Json(charge): Json<Charge>) -> (StatusCode, Json<Charge>) {
    (StatusCode::CREATED, Json(charge))
}

pub(crate) const BODY: &str = r#"{"amount":1250,"currency":"EUR","from":"DE89370400440532013000","to":"FR1420041010050500013M02606","reference":"invoice 2026-11-0042, thank you for your business and see you again soon, best regards"}"#;

/// The bare service.
pub(crate) fn app() -> Router {
    Router::new().route("/charge", post(charge))
}
