//! `/v1/payment_intents`: for payment SDKs as they are, in the shapes that they send and read.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::app::App;
use crate::call::Call;
use crate::problem::Problem;

#[derive(Serialize)]
struct PaymentIntent {
    id: String,
    object: &'static str,
    amount: i64,
    currency: String,
    status: &'static str,
}

pub(crate) async fn create(State(app): State<App>, call: Result<Call, Problem>) -> Response {
    let made = match call {
        Ok(call) => pay(&app, &call).await,
        Err(problem) => Err(problem),
    };
    made.unwrap_or_else(|problem| error(&problem))
}

async fn pay(app: &App, call: &Call) -> Result<Response, Problem> {
    let amount = field(&call.body, "amount")?;
    let amount = amount.parse().map_err(|_| Problem::bad_request("Invalid integer: amount"))?;
    let currency = field(&call.body, "currency")?;
    let switches = &call.switches;
    if let Some(answer) = switches.before_effect().await {
        return Ok(answer);
    }
    let seq = app.ledger.write(&call.effect(amount)).await.map_err(|error| Problem::ledger(&error))?;
    switches.after_effect().await;
    switches.after_commit();
    let id = format!("pi_{seq}");
    let intent = PaymentIntent { id, object: "payment_intent", amount, currency, status: "succeeded" };
    Ok(switches.answer(StatusCode::OK, None, &intent))
}

fn field(form: &[u8], name: &str) -> Result<String, Problem> {
    let mut fields = form_urlencoded::parse(form);
    let value = fields.find_map(|(found, value)| (found == name && !value.is_empty()).then(|| value.into_owned()));
    value.ok_or_else(|| Problem::bad_request(format!("Missing required param: {name}.")))
}

#[derive(Serialize)]
struct Refused<'p> {
    error: Fault<'p>,
}

#[derive(Serialize)]
struct Fault<'p> {
    r#type: &'static str,
    message: &'p str,
}

fn error(problem: &Problem) -> Response {
    let r#type = if problem.status().is_server_error() { "api_error" } else { "invalid_request_error" };
    (problem.status(), Json(Refused { error: Fault { r#type, message: problem.detail() } })).into_response()
}
