//! A card provider that knows `Idempotency-Key`: two requests with one key are one charge.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use crate::fault::Books;

pub(crate) type Cards = Books<(Option<String>, Charge)>;

/// What the provider has done.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Charge {
    pub(crate) charge: String,
    pub(crate) amount: u64,
}

#[derive(Deserialize)]
struct Ordered {
    amount: u64,
}

pub(crate) fn router(cards: Cards) -> Router {
    Router::new().route("/charges", post(charge)).with_state(cards)
}

async fn charge(State(cards): State<Cards>, headers: HeaderMap, Json(ordered): Json<Ordered>) -> Response {
    let fault = cards.next_fault();
    if !fault.is_done() {
        return fault.answer(().into_response()).await;
    }
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(ToOwned::to_owned);
    let charge = cards.with(|charges| {
        let known = charges.iter().find(|(known, _)| key.is_some() && *known == key);
        if let Some((_, charge)) = known {
            return charge.clone();
        }
        let charge = Charge { charge: format!("ch_{}", charges.len() + 1), amount: ordered.amount };
        charges.push((key, charge.clone()));
        charge
    });
    fault.answer((StatusCode::CREATED, Json(charge)).into_response()).await
}
