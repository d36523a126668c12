//! A bank that knows no idempotency key: whatever arrives is a transfer. It can be asked about one by the reference it came with.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::fault::Books;

pub(crate) type Bank = Books<Transfer>;

/// What the bank has done.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Transfer {
    pub(crate) transfer: String,
    pub(crate) reference: String,
    pub(crate) to: String,
    pub(crate) amount: u64,
}

#[derive(Deserialize)]
struct Ordered {
    reference: String,
    to: String,
    amount: u64,
}

#[derive(Deserialize)]
struct Asked {
    reference: String,
}

pub(crate) fn router(bank: Bank) -> Router {
    Router::new().route("/transfers", post(transfer).get(look_up)).with_state(bank)
}

async fn transfer(State(bank): State<Bank>, Json(ordered): Json<Ordered>) -> Response {
    let fault = bank.next_fault();
    if !fault.is_done() {
        return fault.answer(().into_response()).await;
    }
    let transfer = bank.with(|transfers| {
        let transfer = format!("tr_{}", transfers.len() + 1);
        let transfer = Transfer { transfer, reference: ordered.reference, to: ordered.to, amount: ordered.amount };
        transfers.push(transfer.clone());
        transfer
    });
    fault.answer((StatusCode::CREATED, Json(transfer)).into_response()).await
}

async fn look_up(State(bank): State<Bank>, Query(asked): Query<Asked>) -> Result<Json<Transfer>, StatusCode> {
    let found = bank.with(|transfers| transfers.iter().find(|transfer| transfer.reference == asked.reference).cloned());
    found.map(Json).ok_or(StatusCode::NOT_FOUND)
}
