//! `/tx-charge`: an effect and its outcome in one transaction.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use idempotency::transaction::{self, TransactionalStore};
use idempotency_sqlx::{MySqlStore, PostgresStore, SqliteStore};
use tower_idempotency::{Attempt, WholeResponse};

use super::charge::Charge;
use crate::app::App;
use crate::call::Call;
use crate::ledger::{Effect, Effects};
use crate::problem::Problem;
use crate::store::Backend;

pub(crate) async fn charge(State(app): State<App>, call: Call) -> Result<Response, Problem> {
    let amount = call.amount()?;
    let Some(backend) = &app.same_database else {
        return Err(Problem::not_in_one_database());
    };
    if let Some(answer) = call.switches.before_effect().await {
        return Ok(answer);
    }
    let effect = call.effect(amount);
    let Some(attempt) = &call.attempt else { return alone(&app, &call, &effect).await };
    match backend {
        Backend::Sqlite(store) => in_transaction(store, attempt, &call, &effect).await,
        Backend::Postgres(store) => in_transaction(store, attempt, &call, &effect).await,
        Backend::MySql(store) => in_transaction(store, attempt, &call, &effect).await,
        Backend::Memory | Backend::Redis => Err(Problem::not_in_one_database()),
    }
}

async fn in_transaction<St: EffectStore>(
    store: &St,
    attempt: &Attempt,
    call: &Call,
    effect: &Effect,
) -> Result<Response, Problem> {
    let begun = transaction::begin(store, attempt, async |opening| store.open_transaction(opening).await).await;
    let mut transaction = begun.map_err(|error| Problem::store(&error))?;
    let id = St::insert(&mut transaction, effect).await.map_err(|error| Problem::ledger(&error))?;
    call.switches.after_effect().await;
    let response = WholeResponse::read(answer(call, id, effect.amount)).await;
    let response = response.map_err(|error| Problem::store(&error))?;
    let committed = transaction::commit(store, attempt, transaction, response).await;
    let response = committed.map_err(|error| Problem::store(&error))?;
    call.switches.after_commit();
    Ok(response.into_response())
}

/// Without protection, or without a key: nothing is recorded.
async fn alone(app: &App, call: &Call, effect: &Effect) -> Result<Response, Problem> {
    let id = app.ledger.write(effect).await.map_err(|error| Problem::ledger(&error))?;
    call.switches.after_effect().await;
    call.switches.after_commit();
    Ok(answer(call, id, effect.amount))
}

fn answer(call: &Call, id: i64, amount: i64) -> Response {
    call.switches.answer(StatusCode::CREATED, Some(&format!("/charges/{id}")), &Charge { id, amount })
}

/// A store in whose transactions effects are written.
trait EffectStore: TransactionalStore {
    async fn insert(transaction: &mut Self::Transaction, effect: &Effect) -> Result<i64, sqlx::Error>;
}

impl EffectStore for SqliteStore {
    async fn insert(transaction: &mut Self::Transaction, effect: &Effect) -> Result<i64, sqlx::Error> {
        Effects::insert(&mut **transaction, effect).await
    }
}

impl EffectStore for PostgresStore {
    async fn insert(transaction: &mut Self::Transaction, effect: &Effect) -> Result<i64, sqlx::Error> {
        Effects::insert(&mut **transaction, effect).await
    }
}

impl EffectStore for MySqlStore {
    async fn insert(transaction: &mut Self::Transaction, effect: &Effect) -> Result<i64, sqlx::Error> {
        Effects::insert(&mut **transaction, effect).await
    }
}
