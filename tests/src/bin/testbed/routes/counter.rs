//! `/counter/{resource}`: a lease, its fence, and a counter that is read, thought about, and written in another transaction.
//! `/fenced/{resource}`: the same in one transaction, under a token that the caller holds.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use idempotency::{FenceTicket, FencingToken, Resource, Taken};
use idempotency_sqlx::fence::{FenceDatabase, FenceError, FencedTransaction, Fences, Once, once};
use serde::Serialize;
use sqlx::Database;

use crate::app::App;
use crate::call::Call;
use crate::ledger::{Counter, Effect, Effects, Ledger};
use crate::problem::{Answer, Problem};

/// What is added, to which counter.
struct Addition<'c> {
    app: &'c App,
    call: &'c Call,
    resource: Resource,
    effect: Effect,
    think: Duration,
}

/// The answer to an addition.
#[derive(Serialize)]
struct Added {
    value: i64,
    token: Option<i64>,
}

pub(crate) async fn show(State(app): State<App>, Path(resource): Path<String>) -> Result<Json<Counter>, Problem> {
    app.ledger.counter(&resource).await.map(Json).map_err(|error| Problem::ledger(&error))
}

pub(crate) async fn add(State(app): State<App>, Path(resource): Path<String>, call: Call) -> Result<Response, Answer> {
    let addition = Addition::new(&app, &call, &resource)?;
    if app.unprotected {
        return addition.unprotected().await;
    }
    match &app.ledger {
        Ledger::Sqlite(ledger) => addition.under_a_lease(&ledger.fences).await,
        Ledger::Postgres(ledger) => addition.under_a_lease(&ledger.fences).await,
        Ledger::MySql(ledger) => addition.under_a_lease(&ledger.fences).await,
    }
}

pub(crate) async fn fenced(
    State(app): State<App>,
    Path(resource): Path<String>,
    call: Call,
) -> Result<Response, Answer> {
    let addition = Addition::new(&app, &call, &resource)?;
    let Some(ticket) = call.ticket.filter(|_| !app.unprotected) else { return addition.unprotected().await };
    match &app.ledger {
        Ledger::Sqlite(ledger) => addition.under_a_ticket(&ledger.fences, &ticket).await,
        Ledger::Postgres(ledger) => addition.under_a_ticket(&ledger.fences, &ticket).await,
        Ledger::MySql(ledger) => addition.under_a_ticket(&ledger.fences, &ticket).await,
    }
}

impl<'c> Addition<'c> {
    fn new(app: &'c App, call: &'c Call, resource: &str) -> Result<Self, Problem> {
        let resource = Resource::parse(resource).map_err(Problem::bad_request)?;
        let mut effect = call.effect(call.amount()?);
        effect.resource = Some(resource.as_str().to_owned());
        Ok(Self { app, call, resource, effect, think: call.think() })
    }

    /// Nobody looks: what was read may be long gone when it is written.
    async fn unprotected(mut self) -> Result<Response, Answer> {
        let read = self.app.ledger.counter(self.resource.as_str()).await.map_err(|error| Problem::ledger(&error))?;
        tokio::time::sleep(self.think).await;
        let counter = Counter { value: self.sum(read)?, token: None };
        (self.effect.value, self.effect.token) = (Some(counter.value), None);
        self.app.ledger.overwrite(counter, &self.effect).await.map_err(|error| Problem::ledger(&error))?;
        Ok(answer(counter))
    }

    async fn under_a_lease<F: Fences>(self, fences: &F) -> Result<Response, Answer>
    where
        <F::Database as Database>::Connection: Effects,
    {
        let lease = match self.app.leaser.acquire(&self.resource, LONGEST_WAIT).await {
            Ok(Taken::Yours(lease)) => lease,
            Ok(Taken::Held { lease_left }) => return Err(Answer::lease_held(lease_left)),
            Err(error) => return Err(Problem::store(&error).into()),
        };
        // Open, then read, then write.
        let mut opening = match fences.open_healing(&self.resource, &lease).await {
            Ok(opening) => opening,
            Err(refused) => return self.refused(refused).await,
        };
        let read = read(&mut opening, &self.resource).await?;
        let opened = match opening.commit().await {
            Ok(opened) => opened,
            Err(refused) => return self.refused(refused).await,
        };
        tokio::time::sleep(self.think).await;
        let answer = match fences.reopen(&opened).await {
            Ok(transaction) => self.write(transaction, read).await,
            Err(refused) => self.refused(refused).await,
        };
        // Whoever waits need not wait for the end of the lease. What came of it changes nothing any more.
        let _ = lease.release().await;
        answer
    }

    async fn under_a_ticket<F: Fences>(self, fences: &F, ticket: &FenceTicket) -> Result<Response, Answer>
    where
        <F::Database as Database>::Connection: Effects,
    {
        let mut transaction = match fences.open_with(&self.resource, ticket).await {
            Ok(transaction) => transaction,
            // Without a holder a token is good for one request, and this is another one.
            Err(FenceError::AlreadyApplied) => return self.refused(superseded_by(ticket.token)).await,
            Err(refused) => return self.refused(refused).await,
        };
        let read = read(&mut transaction, &self.resource).await?;
        tokio::time::sleep(self.think).await;
        self.write(transaction, read).await
    }

    async fn write<D>(mut self, mut transaction: FencedTransaction<D>, read: Counter) -> Result<Response, Answer>
    where
        D: FenceDatabase,
        D::Connection: Effects,
    {
        if let Some(attempt) = &self.call.attempt {
            match once(&mut transaction, attempt.record_id()).await {
                Ok(Once::First) => {}
                // An earlier attempt wrote, and died before its answer was recorded.
                Ok(Once::Already) => {
                    transaction.rollback().await;
                    let earlier = self.earlier().await?;
                    return earlier.ok_or_else(|| Problem::bad_request("The marker's effect is missing.").into());
                }
                Err(refused) => return self.refused(refused).await,
            }
        }
        let token = transaction.ticket().token.get();
        let counter = Counter { value: self.sum(read)?, token: Some(token.cast_signed()) };
        (self.effect.value, self.effect.token) = (Some(counter.value), Some(token));
        let written = async {
            transaction.set_counter(self.resource.as_str(), counter).await?;
            transaction.insert(&self.effect).await
        };
        written.await.map_err(|error| Problem::ledger(&error))?;
        match transaction.commit().await {
            Ok(_) => Ok(answer(counter)),
            Err(refused) => self.refused(refused).await,
        }
    }

    fn sum(&self, read: Counter) -> Result<i64, Problem> {
        let sum = read.value.checked_add(self.effect.amount);
        sum.ok_or_else(|| Problem::bad_request("The counter cannot hold so much."))
    }

    /// Says why not, unless an earlier attempt of the same key had written.
    async fn refused(self, refused: FenceError) -> Result<Response, Answer> {
        match self.earlier().await? {
            Some(earlier) => Ok(earlier),
            None => Err(Answer::refused(&refused)),
        }
    }

    /// What an earlier attempt of the same key answered, or would have.
    async fn earlier(&self) -> Result<Option<Response>, Problem> {
        let Some(key) = self.call.attempt.as_ref().map(|attempt| attempt.key().as_str()) else { return Ok(None) };
        let rows = self.app.ledger.effects(Some(key), Some(&self.call.route)).await;
        let rows = rows.map_err(|error| Problem::ledger(&error))?;
        let written = rows.into_iter().find(|row| row.resource.as_deref() == Some(self.resource.as_str()));
        Ok(written.map(|row| answer(Counter { value: row.value.unwrap_or_default(), token: row.token })))
    }
}

async fn read<D>(transaction: &mut FencedTransaction<D>, resource: &Resource) -> Result<Counter, Problem>
where
    D: FenceDatabase,
    D::Connection: Effects,
{
    transaction.counter(resource.as_str()).await.map_err(|error| Problem::ledger(&error))
}

fn superseded_by(current: FencingToken) -> FenceError {
    FenceError::Superseded { current }
}

fn answer(counter: Counter) -> Response {
    (StatusCode::OK, Json(Added { value: counter.value, token: counter.token })).into_response()
}

/// How long another holder of the lease is waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(3);
