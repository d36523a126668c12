//! `/charge` and `/required`: one effect, and an answer that says its number.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use crate::app::App;
use crate::call::Call;
use crate::problem::Problem;

#[derive(Serialize)]
pub(super) struct Charge {
    pub(super) id: i64,
    pub(super) amount: i64,
}

pub(crate) async fn charge(State(app): State<App>, call: Call) -> Result<Response, Problem> {
    let amount = call.amount()?;
    let switches = &call.switches;
    if let Some(answer) = switches.before_effect().await {
        return Ok(answer);
    }
    let id = app.ledger.write(&call.effect(amount)).await.map_err(|error| Problem::ledger(&error))?;
    switches.after_effect().await;
    switches.after_commit();
    Ok(switches.answer(StatusCode::CREATED, Some(&format!("/charges/{id}")), &Charge { id, amount }))
}
