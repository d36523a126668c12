//! `/records`: what the store keeps, and what an operator does about doubts.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use idempotency::{
    BoxStore, Entry, FencingToken, Key, List, Outcome, RecordId, Resolve, ResolveVerdict, Resolved,
    State as RecordState, Store as _, StoreError,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::App;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    state: Option<String>,
    key: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Records {
    records: Vec<Record>,
}

#[derive(Debug, Serialize)]
struct Record {
    id: String,
    state: &'static str,
    token: Option<u64>,
    attempt: u32,
    age_ms: u64,
}

impl From<Entry> for Record {
    fn from(entry: Entry) -> Self {
        Self {
            id: entry.id.to_string(),
            state: entry.state.as_str(),
            token: entry.token.map(FencingToken::get),
            attempt: entry.attempt,
            age_ms: u64::try_from(entry.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Records>, Problem> {
    let state = which.state.as_deref().map(state).transpose()?;
    let store = app.engine.store();
    let entries = match &which.key {
        None => all(store, state).await,
        Some(key) => {
            let key = Key::parse(key).map_err(Problem::bad_request)?;
            let scope = app.scope.tell(&headers).ok_or_else(|| Problem::bad_request("The scope is not told."))?;
            let found = store.inspect(&RecordId::new(&scope, &key)).await;
            found
                .map(|entry| entry.into_iter().filter(|entry| state.is_none_or(|state| entry.state == state)).collect())
        }
    };
    let entries: Vec<Entry> = entries.map_err(|error| Problem::store(&error))?;
    Ok(Json(Records { records: entries.into_iter().map(Record::from).collect() }))
}

fn state(name: &str) -> Result<RecordState, Problem> {
    let known = RecordState::ALL.into_iter().find(|state| state.as_str() == name);
    known.ok_or_else(|| Problem::bad_request("A state is in-flight, completed, tombstone, in-doubt or released."))
}

async fn all(store: &BoxStore, state: Option<RecordState>) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    let mut list = List { state, limit: 1000, ..List::default() };
    loop {
        let page = store.list(&list).await?;
        entries.extend(page.entries);
        match page.next {
            Some(next) => list.after = Some(next),
            None => return Ok(entries),
        }
    }
}

/// What an operator found out about a record in doubt.
#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    token: u64,
    who: String,
    why: String,
    happened: bool,
    /// With `happened`: what duplicates are answered from now on.
    status: Option<u16>,
    body: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Settled {
    id: String,
    state: &'static str,
}

pub(crate) async fn resolve(
    State(app): State<App>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Settled>, Problem> {
    let id: RecordId = id.parse().map_err(Problem::bad_request)?;
    let finding: Finding = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
    let token_seen = FencingToken::new(finding.token).map_err(Problem::bad_request)?;
    if finding.who.is_empty() || finding.why.is_empty() {
        return Err(Problem::bad_request("A resolution says who and why."));
    }
    let (verdict, state) = if finding.happened {
        (ResolveVerdict::Happened(outcome(&finding)?), RecordState::Completed)
    } else {
        (ResolveVerdict::DidNotHappen { fence_token: None }, RecordState::Released)
    };
    let resolve = Resolve { id, token_seen, verdict, who: finding.who, why: finding.why };
    match app.engine.store().resolve(&resolve).await.map_err(|error| Problem::store(&error))? {
        Resolved::Applied => Ok(Json(Settled { id: id.to_string(), state: state.as_str() })),
        Resolved::Superseded => Err(conflict("record-moved-on", "The record has another token by now.")),
        Resolved::NotInDoubt(state) => {
            Err(conflict("record-not-in-doubt", format!("The record is {}.", state.as_str())))
        }
        Resolved::Missing => Err(Problem::new(StatusCode::NOT_FOUND, "record-missing", "There is no such record.")),
    }
}

pub(super) fn conflict(kind: &'static str, detail: impl ToString) -> Problem {
    Problem::new(StatusCode::CONFLICT, kind, detail)
}

/// The answer that duplicates get, recorded as the layer records a handler's.
fn outcome(finding: &Finding) -> Result<Outcome, Problem> {
    let status = finding.status.unwrap_or(200);
    let status = StatusCode::from_u16(status).ok().filter(|_| status >= 200);
    let status = status.ok_or_else(|| Problem::bad_request("A status is a number from 200 to 999."))?;
    let body = finding.body.as_ref().map(serde_json::to_vec).transpose().map_err(Problem::bad_request)?;
    let has_body = body.is_some();
    let mut response = Response::new(Bytes::from(body.unwrap_or_default()));
    *response.status_mut() = status;
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(tower_idempotency::recorded(response))
}
