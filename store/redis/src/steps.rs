//! The steps of records: calls to external APIs. One script each, which judges as [`protocol`](idempotency::outbound::protocol) does.

use std::time::Duration;

use bytes::Bytes;
use idempotency::outbound::{
    Again, Alarm, BeginCall, Begun, CallRecord, EndCall, Ended, LoggedEnd, ResolveStep, StepEntry, StepLabel,
    StepResolved, StepResult, StepStanding, StepState, StepVerdict, StepView,
};
use idempotency::{Nonce, RecordId, StoreError};
use redis::{Cmd, Value};

use crate::db::{Db, duration};
use crate::error::{is_out_of_memory, store_error};
use crate::link::Resend;
use crate::replicas::not_replicated;
use crate::reply::{self, Reply};
use crate::scripts;

mod list;

pub(crate) use list::list;

pub(crate) async fn begin(db: &Db, ask: &BeginCall) -> Result<Begun, StoreError> {
    let keys = db.keys.record(&ask.holder.id);
    let arguments = |full: bool| {
        move |command: &mut Cmd| {
            command
                .arg(ask.holder.token.get())
                .arg(ask.holder.nonce.as_bytes())
                .arg(ask.label.as_str())
                .arg(&ask.request.to_bytes())
                .arg(ask.nonce.as_bytes())
                .arg(duration(ask.timeout))
                .arg(duration(ask.quiet))
                .arg(duration(ask.lease_needed));
            match ask.again {
                Again::Never => command.arg(""),
                Again::Within(window) => command.arg(duration(window)),
            };
            command.arg(i64::from(full));
        }
    };
    let begun = |answer: &Value| begins_with(answer, &["go"]);
    let answered = match db.write((&scripts::STEP_BEGIN, &keys), Resend::Refused, arguments(false), begun).await {
        Err(error) if is_out_of_memory(&error) => {
            db.write((&scripts::STEP_BEGIN_WHEN_FULL, &keys), Resend::Refused, arguments(true), begun).await
        }
        answered => answered,
    };
    let (answer, replicated) = answered.map_err(store_error)?;
    let mut reply = Reply::new(answer)?;
    let begun = match reply.text()?.as_str() {
        "go" => Begun::Go { call: reply.number()?, window_age: reply.duration()? },
        "stands" => {
            let (standing, _) = standing(&mut reply)?;
            Begun::Stands { standing, call: reply.number()?, token: reply.token()? }
        }
        "request changed" => Begun::RequestChanged,
        "over" => Begun::Over,
        "superseded" => Begun::Superseded,
        "lease too short" => Begun::LeaseTooShort { lease_left: reply.duration()? },
        "full" => Begun::Full,
        other => return Err(reply::not(other)),
    };
    // Nobody calls, and whoever asked reports that.
    replicated.map_err(|short| not_replicated("begin_call", short))?;
    Ok(begun)
}

pub(crate) async fn end(db: &Db, report: &EndCall) -> Result<Ended, StoreError> {
    let arguments = |command: &mut Cmd| {
        command.arg(report.label.as_str()).arg(report.nonce.as_bytes());
        let (ending, result, why) = match &report.end {
            LoggedEnd::Unknown(why) => (LOST, None, why.as_str()),
            LoggedEnd::NotDone(why) => (NOT_SENT, None, why.as_str()),
            LoggedEnd::Refused(result) => (REFUSED, Some(result), ""),
            LoggedEnd::Done(result) => (DONE, Some(result), ""),
        };
        command.arg(ending);
        if let Some(result) = result {
            put(command, result);
        } else {
            command.arg(NONE).arg(why);
        }
    };
    let wrote = |answer: &Value| begins_with(answer, &["logged", "never began"]);
    let keys = db.keys.record(&report.id);
    let answered = db.write((&scripts::STEP_END, &keys), Resend::Broken, arguments, wrote).await;
    let (answer, replicated) = answered.map_err(store_error)?;
    let mut reply = Reply::new(answer)?;
    let ended = match reply.text()?.as_str() {
        "logged" => Ended::Logged { standing: standing(&mut reply)?.0, alarm: alarm(&mut reply)? },
        "never began" => Ended::NeverBegan,
        "missing" => Ended::Missing,
        other => return Err(reply::not(other)),
    };
    replicated.map_err(|short| not_replicated("end_call", short))?;
    Ok(ended)
}

pub(crate) async fn resolve(db: &Db, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
    // Made here, so that a message that is sent twice is recognised.
    let nonce = Nonce::random();
    let arguments = |command: &mut Cmd| {
        command
            .arg(resolve.label.as_str())
            .arg(resolve.call_seen)
            .arg(nonce.as_bytes())
            .arg(&resolve.who)
            .arg(&resolve.why);
        if let StepVerdict::Happened(result) = &resolve.verdict {
            put(command, result);
        }
    };
    let answer = db.run(&scripts::STEP_RESOLVE, &db.keys.record(&resolve.id), arguments).await?;
    match reply::text(answer)?.as_str() {
        "applied" => Ok(StepResolved::Applied),
        "superseded" => Ok(StepResolved::Superseded),
        "missing" => Ok(StepResolved::Missing),
        other => state(other).map(StepResolved::NotUnknown),
    }
}

pub(crate) async fn inspect(db: &Db, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
    let arguments = |command: &mut Cmd| {
        command.arg(label.as_str());
    };
    let answer = db.run(&scripts::STEP_INSPECT, &db.keys.record(id), arguments).await?;
    let mut reply = Reply::new(answer)?;
    match reply.text()?.as_str() {
        "known" => {}
        "missing" => return Ok(None),
        other => return Err(reply::not(other)),
    }
    let (standing, age) = standing(&mut reply)?;
    let entry = StepEntry {
        id: *id,
        label: label.clone(),
        state: standing.state(),
        call: reply.number()?,
        token: reply.token()?,
        age,
        resolution: Option::zip(reply.optional_text()?, reply.optional_text()?),
    };
    let mut calls = reply.replies()?.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
    calls.sort_by_key(|call| call.number);
    Ok(Some(StepView { entry, standing, calls }))
}

/// How a step stands, and since how long.
fn standing(reply: &mut Reply) -> Result<(StepStanding, Duration), StoreError> {
    let state = state(&reply.text()?)?;
    let (age, time_left, result) = (reply.duration()?, reply.duration()?, result(reply)?);
    let standing = match (state, result) {
        (StepState::Calling, _) => StepStanding::Calling { time_left },
        (StepState::Succeeded, Some(result)) => StepStanding::Succeeded(result),
        (StepState::Succeeded, None) => return Err(reply::unexpected()),
        (StepState::Failed, result) => StepStanding::Failed(result),
        (StepState::Unknown, _) => StepStanding::Unknown { age },
        (StepState::Retryable, _) => StepStanding::Retryable,
    };
    Ok((standing, age))
}

fn call(mut reply: Reply) -> Result<CallRecord, StoreError> {
    let (number, token, begun_at, ended_at) = (reply.number()?, reply.optional_token()?, reply.time()?, reply.time()?);
    let ending: i64 = reply.number()?;
    let kept: i64 = reply.number()?;
    let text = reply.optional_bytes()?.unwrap_or_default();
    let why = || String::from_utf8(text.to_vec()).map_err(|_| reply::unreadable());
    let result = || result_of(kept, Some(text.clone()))?.ok_or_else(reply::unexpected);
    let end = match ending {
        NO_END => None,
        LOST => Some(LoggedEnd::Unknown(why()?)),
        NOT_SENT => Some(LoggedEnd::NotDone(why()?)),
        REFUSED => Some(LoggedEnd::Refused(result()?)),
        DONE => Some(LoggedEnd::Done(result()?)),
        _ => return Err(reply::unexpected()),
    };
    Ok(CallRecord { number, token, begun_at, ended_at: end.as_ref().map(|_| ended_at), end })
}

fn result(reply: &mut Reply) -> Result<Option<StepResult>, StoreError> {
    let (kept, bytes) = (reply.number()?, reply.optional_bytes()?);
    result_of(kept, bytes)
}

fn result_of(kept: i64, bytes: Option<Bytes>) -> Result<Option<StepResult>, StoreError> {
    match (kept, bytes) {
        (NONE, _) => Ok(None),
        (TOO_LONG, _) => Ok(Some(StepResult::TooLong)),
        (KEPT, Some(bytes)) => Ok(Some(StepResult::Kept(bytes))),
        _ => Err(reply::unexpected()),
    }
}

fn alarm(reply: &mut Reply) -> Result<Option<Alarm>, StoreError> {
    Ok(match reply.optional_text()?.as_deref() {
        None => None,
        Some("done while calling") => Some(Alarm::DoneWhileCalling),
        Some("done twice") => Some(Alarm::DoneTwice),
        Some("done after all") => Some(Alarm::DoneAfterAll),
        Some(_) => return Err(reply::unexpected()),
    })
}

fn state(word: &str) -> Result<StepState, StoreError> {
    StepState::ALL.into_iter().find(|state| state.as_str() == word).ok_or_else(|| reply::not(word))
}

/// A result as scripts take it: whether it is kept, and its bytes.
fn put(command: &mut Cmd, result: &StepResult) {
    match result {
        StepResult::Kept(bytes) => command.arg(KEPT).arg(bytes.as_ref()),
        StepResult::TooLong => command.arg(TOO_LONG).arg(""),
    };
}

/// Whether an answer is one of these.
fn begins_with(answer: &Value, words: &[&str]) -> bool {
    let Value::Array(values) = answer else { return false };
    matches!(values.first(), Some(Value::BulkString(first)) if words.iter().any(|word| word.as_bytes() == first))
}

// As `lua/step.lua` and `lua/record.lua` call them.
const NONE: i64 = 0;
const TOO_LONG: i64 = 1;
const KEPT: i64 = 2;
const NO_END: i64 = 0;
const LOST: i64 = 1;
const NOT_SENT: i64 = 2;
const REFUSED: i64 = 3;
const DONE: i64 = 4;
