//! `/webhook`: what a provider delivers, perhaps more than once, under the id in its body.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;

use crate::app::App;
use crate::call::Call;
use crate::problem::Problem;

/// The delivery's own name: the member `id` of its JSON body.
pub(crate) fn id(body: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(body).ok()?.get("id")? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

#[derive(Serialize)]
struct Received {
    received: bool,
    id: i64,
}

pub(crate) async fn webhook(State(app): State<App>, call: Call) -> Result<Response, Problem> {
    let amount = call.amount()?;
    let key = id(&call.body).ok_or_else(|| Problem::bad_request("A delivery has an id."))?;
    let switches = &call.switches;
    if let Some(answer) = switches.before_effect().await {
        return Ok(answer);
    }
    let mut effect = call.effect(amount);
    effect.key = Some(key);
    let id = app.ledger.write(&effect).await.map_err(|error| Problem::ledger(&error))?;
    switches.after_effect().await;
    switches.after_commit();
    Ok(switches.answer(StatusCode::OK, None, &Received { received: true, id }))
}
