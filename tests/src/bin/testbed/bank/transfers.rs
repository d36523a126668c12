//! `/transfers`: what the bank is for.

use std::io;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Query, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use super::Bank;
use super::books::{Asked, Transfer};
use super::fault::Fault;
use super::wire::Wire;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
struct Order {
    reference: String,
    amount: i64,
}

pub(super) async fn transfer(
    State(bank): State<Bank>,
    ConnectInfo(wire): ConnectInfo<Wire>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let order: Order = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
    let asked = Asked { reference: order.reference, amount: order.amount, key: key(&headers) };
    let meets = |nth| bank.planned(asked.amount).unwrap_or_else(|| bank.0.faults.draw(&asked.reference, nth));
    let (fault, made) = bank.0.books.call(&asked, meets).await.map_err(|error| Problem::ledger(&error))?;
    if made.as_ref().is_some_and(|made| made.amount != asked.amount) {
        let detail = "The key stands for another transfer.";
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", detail));
    }
    match (fault, made) {
        (Fault::None, Some(made)) => Ok(created(&made)),
        (Fault::HalfABody, Some(made)) => Ok(half(&made)),
        (Fault::Refuse, _) => {
            Ok((StatusCode::PAYMENT_REQUIRED, Json(json!({ "refused": asked.reference }))).into_response())
        }
        (Fault::TooMany, _) => Ok(StatusCode::TOO_MANY_REQUESTS.into_response()),
        (Fault::Error, _) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
        (Fault::CommitThen502, _) => Ok(StatusCode::BAD_GATEWAY.into_response()),
        (Fault::CommitThenReset | Fault::Reset, _) => {
            wire.reset();
            // It is never written.
            Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response())
        }
        (Fault::Slow, _) => {
            sleep(SLOW).await;
            let made = bank.0.books.transfer(&asked).await.map_err(|error| Problem::ledger(&error))?;
            Ok(created(&made))
        }
        (Fault::Late, _) => {
            // The caller goes away long before, and this handler with it.
            tokio::spawn(async move {
                sleep(LATE).await;
                if let Err(error) = bank.0.books.transfer(&asked).await {
                    tracing::error!(%error, "a late transfer failed");
                }
            });
            std::future::pending().await
        }
        (Fault::Stall | Fault::CommitThenStall | Fault::None | Fault::HalfABody, _) => std::future::pending().await,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Which {
    reference: String,
}

pub(super) async fn look_up(State(bank): State<Bank>, Query(which): Query<Which>) -> Result<Response, Problem> {
    let millis = i64::try_from(bank.0.settle.as_millis()).unwrap_or(i64::MAX);
    let found = bank.0.books.settled(&which.reference, millis).await.map_err(|error| Problem::ledger(&error))?;
    Ok(match found {
        Some(transfer) => (StatusCode::OK, Json(shown(&transfer))).into_response(),
        None => Problem::new(StatusCode::NOT_FOUND, "no-transfer", "There is no such transfer.").into_response(),
    })
}

/// `Idempotency-Key`, quoted or not.
fn key(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("idempotency-key")?.to_str().ok()?.trim_matches('"').to_owned())
}

fn shown(transfer: &Transfer) -> serde_json::Value {
    json!({ "transfer": transfer.id, "reference": transfer.reference, "amount": transfer.amount })
}

fn created(transfer: &Transfer) -> Response {
    (StatusCode::CREATED, Json(shown(transfer))).into_response()
}

/// As many bytes as the whole would have are announced, half of them come.
fn half(transfer: &Transfer) -> Response {
    let whole = Bytes::from(shown(transfer).to_string());
    let length = whole.len();
    let pieces = [Ok(whole.slice(..length / 2)), Err(io::Error::other("asked to break off"))];
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_LENGTH, length.to_string())];
    (StatusCode::CREATED, headers, Body::from_stream(stream::iter(pieces))).into_response()
}

const SLOW: Duration = Duration::from_millis(600);
const LATE: Duration = Duration::from_millis(2500);
