//! `/payout`: a call to an external API that is not idempotent.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use idempotency::outbound::{Decision, StepError};
use idempotency::{Key, Nonce, RecordId};
use tower_idempotency::{Attempt, Refusal};

use crate::app::App;
use crate::call::Call;
use crate::payouts::{Bank, Payouts, SETTLE_TIME};
use crate::problem::{Answer, Problem};

pub(crate) async fn pay(State(app): State<App>, call: Call) -> Result<Response, Answer> {
    let amount = call.amount()?;
    let payouts = app.payouts.as_ref();
    let payouts = payouts.ok_or_else(|| Problem::not_served("There is no bank to call: start with --bank URL."))?;
    if let Some(answer) = call.switches.before_effect().await {
        return Ok(answer);
    }
    let answer = match &call.attempt {
        Some(attempt) => guarded(payouts, attempt, &call, amount).await?,
        None if app.unprotected => unguarded(&app, payouts, &call, amount).await?,
        // The layer was told to go on without its store. A guard cannot.
        None => return Err(Answer::Refusal(Refusal::StoreUnavailable { retry_after: SETTLE_TIME })),
    };
    call.switches.after_effect().await;
    Ok(answer)
}

async fn guarded(payouts: &Payouts, attempt: &Attempt, call: &Call, amount: i64) -> Result<Response, Answer> {
    let guard = payouts.guard(call.switches.policy);
    let step = Payouts::step(amount).map_err(Problem::bad_request)?;
    let made = guard.call(attempt, &step, async |to_bank| {
        call.switches.before_call();
        let key = to_bank.idempotency_key().map(|(_, key)| key);
        let called = payouts.bank().transfer(to_bank.reference(), amount, key).await;
        call.switches.after_commit();
        Bank::ending(guard.provider(), called)
    });
    match made.await {
        Ok(outcome) => Ok(match outcome.decision {
            Decision::Done(body) => banks_answer(StatusCode::OK, body),
            Decision::Refused(body) => banks_answer(StatusCode::PAYMENT_REQUIRED, body),
        }),
        Err(error) => Err(Answer::Refusal(refusal(error))),
    }
}

/// A retry asks again in any case: somebody may have resolved the step meanwhile.
fn refusal(error: StepError) -> Refusal {
    match error.into() {
        Refusal::StepUnknown { step, call, retry_after: None } => {
            Refusal::StepUnknown { step, call, retry_after: Some(SETTLE_TIME) }
        }
        refusal => refusal,
    }
}

/// What the fault runs compare against: the same call without a guard. A retry calls again.
async fn unguarded(app: &App, payouts: &Payouts, call: &Call, amount: i64) -> Result<Response, Problem> {
    let scope = app.scope.tell(&call.headers).ok_or_else(|| Problem::bad_request("The scope is not told."))?;
    let key = call.effect(amount).key.unwrap_or_else(|| format!("{:?}", Nonce::random()));
    let id = RecordId::new(&scope, &Key::parse(&key).map_err(Problem::bad_request)?);
    let provider = payouts.guard(call.switches.policy).provider();
    let reference = provider.key(&id, &Payouts::label().map_err(Problem::bad_request)?);
    let called = payouts.bank().transfer(&reference, amount, None);
    let failed = |why: &dyn std::fmt::Display| Problem::new(StatusCode::BAD_GATEWAY, "bank-failed", why);
    let answered = tokio::time::timeout(provider.call_timeout(), called).await;
    let answered = answered.map_err(|elapsed| failed(&elapsed))?.map_err(|error| failed(&error))?;
    match answered.status {
        status if status.is_success() => Ok(banks_answer(StatusCode::OK, answered.body)),
        StatusCode::PAYMENT_REQUIRED => Ok(banks_answer(StatusCode::PAYMENT_REQUIRED, answered.body)),
        status => Err(failed(&format!("The bank answered {status}."))),
    }
}

fn banks_answer(status: StatusCode, body: Bytes) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
