//! The routes. Nothing here looks at the key: that a payment is made once is the layer's business.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{StatusCode, header};
use idempotency::BoxStore;
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::trace::TraceLayer;
use tower_idempotency::{IdempotencyLayer, Verdict};

use crate::ledger::{Ledger, NotPaid, Order};

/// The service, with `layer` around the one route that does something.
pub(crate) fn router(layer: IdempotencyLayer<BoxStore>, ledger: Ledger) -> Router {
    // The draft of the Idempotency-Key header asks a server to publish its rules.
    let rules = Json(layer.describe());
    Router::new()
        .route("/payments", post(pay).layer(layer))
        .route("/payments/{id}", get(payment))
        .route("/accounts/{id}", get(account))
        .route("/.well-known/idempotency", get(async || rules))
        .with_state(ledger)
        // Outside of the idempotency layer, as would be CORS, compression, a timeout, limits and authentication.
        .layer(CatchPanicLayer::new())
        .layer(TraceLayer::new_for_http())
}

async fn pay(State(ledger): State<Ledger>, Json(order): Json<Order>) -> Result<Response, NotPaid> {
    if order.amount <= 0 || order.from == order.to {
        let detail = "a payment moves a positive amount between two accounts";
        return Ok(problem(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let payment = ledger.pay(order).await?;
    let location = format!("/payments/{}", payment.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(payment)).into_response())
}

async fn payment(State(ledger): State<Ledger>, Path(id): Path<i64>) -> Response {
    found(ledger.payment(id).await, "payment")
}

async fn account(State(ledger): State<Ledger>, Path(id): Path<String>) -> Response {
    found(ledger.account(id).await, "account")
}

fn found<T: serde::Serialize>(row: Result<Option<T>, sqlx::Error>, what: &str) -> Response {
    match row {
        Ok(Some(row)) => Json(row).into_response(),
        Ok(None) => problem(StatusCode::NOT_FOUND, &format!("there is no such {what}")),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot read the {what}");
            problem(StatusCode::INTERNAL_SERVER_ERROR, "the database does not answer")
        }
    }
}

/// What an answer says about the effect decides what a duplicate gets.
impl IntoResponse for NotPaid {
    fn into_response(self) -> Response {
        match self {
            // Refused before anything was done: the key is free, and the corrected request may use it again.
            Self::UnknownAccount(id) => {
                problem(StatusCode::UNPROCESSABLE_ENTITY, &format!("there is no account {id:?}"))
            }
            // A decision, and recorded: with the same key it stays a no, even after money has come in.
            Self::InsufficientFunds => problem(StatusCode::PAYMENT_REQUIRED, "the account does not hold the amount"),
            // By its status a 5xx is in doubt. We know better here, and say so.
            Self::NothingDone(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "not paid");
                let answer = problem(StatusCode::SERVICE_UNAVAILABLE, "the database does not answer; nothing was paid");
                ([(header::RETRY_AFTER, "1")], Extension(Verdict::Release), answer).into_response()
            }
            // In doubt. Duplicates get this same answer and nothing runs until somebody has looked.
            Self::Unknown(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "nobody knows whether it was paid");
                problem(StatusCode::INTERNAL_SERVER_ERROR, "nobody knows whether it was paid")
            }
        }
    }
}

fn problem(status: StatusCode, detail: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("problem");
    let body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}
