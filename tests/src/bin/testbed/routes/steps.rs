//! `/steps`: the calls of records, and what an operator does about unknown outcomes.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use idempotency::outbound::{
    BoxSteps, CallRecord, ListSteps, LoggedEnd, ResolveStep, StepEntry, StepLabel, StepResolved, StepResult,
    StepStanding, StepState, StepVerdict, Steps as _,
};
use idempotency::{FencingToken, Key, RecordId, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::records::conflict;
use crate::app::App;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    state: Option<String>,
    key: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    /// Whose step it is.
    id: String,
    label: String,
    state: &'static str,
    /// The last call's number, which a resolution names.
    call: u32,
    token: u64,
    age_ms: u64,
    resolution: Option<Resolution>,
}

#[derive(Debug, Serialize)]
struct Resolution {
    who: String,
    why: String,
}

impl From<StepEntry> for Step {
    fn from(entry: StepEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            label: entry.label.to_string(),
            state: entry.state.as_str(),
            call: entry.call,
            token: entry.token.get(),
            age_ms: u64::try_from(entry.age.as_millis()).unwrap_or(u64::MAX),
            resolution: entry.resolution.map(|(who, why)| Resolution { who, why }),
        }
    }
}

pub(crate) async fn list(
    State(app): State<App>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Listed>, Problem> {
    let state = which.state.as_deref().map(state).transpose()?;
    let id = match &which.key {
        None => None,
        Some(key) => {
            let key = Key::parse(key).map_err(Problem::bad_request)?;
            let scope = app.scope.tell(&headers).ok_or_else(|| Problem::bad_request("The scope is not told."))?;
            Some(RecordId::new(&scope, &key))
        }
    };
    let list = ListSteps { id, state, limit: 1000, ..ListSteps::default() };
    let entries = all(&app.steps, list).await.map_err(|error| Problem::store(&error))?;
    Ok(Json(Listed { steps: entries.into_iter().map(Step::from).collect() }))
}

fn state(name: &str) -> Result<StepState, Problem> {
    let known = StepState::ALL.into_iter().find(|state| state.as_str() == name);
    known.ok_or_else(|| Problem::bad_request("A state is calling, succeeded, failed, unknown or retryable."))
}

async fn all(steps: &BoxSteps, mut list: ListSteps) -> Result<Vec<StepEntry>, StoreError> {
    let mut entries = Vec::new();
    loop {
        let page = steps.list_steps(&list).await?;
        entries.extend(page.entries);
        match page.next {
            Some(next) => list.after = Some(next),
            None => return Ok(entries),
        }
    }
}

/// A step with everything that is known of it.
#[derive(Debug, Serialize)]
pub(crate) struct Inspected {
    #[serde(flatten)]
    step: Step,
    /// What the handler gets, if it is decided.
    result: Option<Value>,
    calls: Vec<CallShown>,
}

#[derive(Debug, Serialize)]
struct CallShown {
    /// 0 for one that was given up before it began.
    number: u32,
    token: Option<u64>,
    begun_at_us: i64,
    ended_at_us: Option<i64>,
    end: Option<&'static str>,
    why: Option<String>,
    result: Option<Value>,
}

impl From<CallRecord> for CallShown {
    fn from(call: CallRecord) -> Self {
        let (end, why, result) = match call.end {
            None => (None, None, None),
            Some(LoggedEnd::Unknown(why)) => (Some("unknown"), Some(why), None),
            Some(LoggedEnd::NotDone(why)) => (Some("not-done"), Some(why), None),
            Some(LoggedEnd::Refused(result)) => (Some("refused"), None, shown(&result)),
            Some(LoggedEnd::Done(result)) => (Some("done"), None, shown(&result)),
        };
        Self {
            number: call.number,
            token: call.token.map(FencingToken::get),
            begun_at_us: call.begun_at.micros(),
            ended_at_us: call.ended_at.map(idempotency::Timestamp::micros),
            end,
            why,
            result,
        }
    }
}

/// As JSON, which the bank answers with, or else as a text.
fn shown(result: &StepResult) -> Option<Value> {
    let bytes = result.bytes()?;
    Some(serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into()))
}

pub(crate) async fn inspect(
    State(app): State<App>,
    Path((id, label)): Path<(String, String)>,
) -> Result<Json<Inspected>, Problem> {
    let (id, label) = name(&id, &label)?;
    let found = app.steps.inspect_step(&id, &label).await.map_err(|error| Problem::store(&error))?;
    let view = found.ok_or_else(missing)?;
    let result = match &view.standing {
        StepStanding::Succeeded(result) | StepStanding::Failed(Some(result)) => shown(result),
        _ => None,
    };
    let calls = view.calls.into_iter().map(CallShown::from).collect();
    Ok(Json(Inspected { step: view.entry.into(), result, calls }))
}

fn name(id: &str, label: &str) -> Result<(RecordId, StepLabel), Problem> {
    Ok((id.parse().map_err(Problem::bad_request)?, StepLabel::parse(label).map_err(Problem::bad_request)?))
}

fn missing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "step-missing", "There is no such step.")
}

/// What an operator found out about a step whose outcome is unknown.
#[derive(Debug, Deserialize)]
pub(crate) struct Finding {
    /// The last call's number, as it was seen.
    call: u32,
    who: String,
    why: String,
    happened: bool,
    /// With `happened`: what the handler gets.
    result: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Settled {
    id: String,
    label: String,
    state: &'static str,
}

pub(crate) async fn resolve(
    State(app): State<App>,
    Path((id, label)): Path<(String, String)>,
    body: Bytes,
) -> Result<Json<Settled>, Problem> {
    let (id, label) = name(&id, &label)?;
    let finding: Finding = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
    if finding.who.is_empty() || finding.why.is_empty() {
        return Err(Problem::bad_request("A resolution says who and why."));
    }
    let (verdict, state) = match (finding.happened, finding.result) {
        (true, Some(result)) => {
            let result = serde_json::to_vec(&result).map_err(Problem::bad_request)?;
            (StepVerdict::Happened(StepResult::of(result.into())), StepState::Succeeded)
        }
        (false, None) => (StepVerdict::DidNotHappen, StepState::Retryable),
        _ => return Err(Problem::bad_request("What happened has a result, and what did not has none.")),
    };
    let settled = Settled { id: id.to_string(), label: label.to_string(), state: state.as_str() };
    let resolve = ResolveStep { id, label, call_seen: finding.call, verdict, who: finding.who, why: finding.why };
    match app.steps.resolve_step(&resolve).await.map_err(|error| Problem::store(&error))? {
        StepResolved::Applied => Ok(Json(settled)),
        StepResolved::Superseded => Err(conflict("step-moved-on", "Another call is the step's last by now.")),
        StepResolved::NotUnknown(state) => {
            Err(conflict("step-not-unknown", format!("The step is {}.", state.as_str())))
        }
        StepResolved::Missing => Err(missing()),
    }
}
