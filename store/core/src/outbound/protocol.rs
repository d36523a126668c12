//! The rules of steps as code: every operation as a pure function over a record, a step, a call and the store's clock.
//!
//! ```text
//!              +-- nothing was sent: another call may follow ------+
//!              v                                                   |
//!  (none) --> CALLING(n) --done--------------------------> SUCCEEDED
//!              ^   |  |                                       ^    |
//!              |   |  +---refused, as documented; no earlier  |    |
//!              |   |      call unresolved --> FAILED          |    |
//!              |   +--anything else, or its quiet period over |    |
//!              |                 |                            |    |
//!              |                 v    happened, late success  |    |
//!              +-- the key ---UNKNOWN ------------------------+    |
//!              |   is known      | did not happen             |    |
//!              |                 v         late success       |    |
//!              +--------------RETRYABLE ----------------------+    FAILED (certainly not done)
//! ```
//!
//! 1. A call is begun only under an attempt that holds its claim, with enough of its lease left.
//! 2. A call that may still leave (its deadline and quiet period are not over) keeps every other one away.
//! 3. A late success is always logged; it makes the step succeeded, at once or, while another call is being made, when that one
//!    ends otherwise.
//! 4. While any call may have happened, a refusal of another one, or its not having been sent, proves nothing: unknown.
//! 5. A late copy of an asking begins nothing: a nonce begins one call at most, and none once it was given up.

use super::contract::{
    Again, Alarm, BeginCall, Begun, EndCall, Ended, ResolveStep, StepEntry, StepResolved, StepStanding, StepVerdict,
};
use super::label::StepLabel;
use super::record::{CallRecord, LoggedEnd, StepRecord, StepStored};
use crate::{Record, RecordId, Standing, Timestamp};

/// Decides an asking: the answer, and what to write if it is to be written.
pub fn begin(
    record: Option<&Record>,
    step: Option<&StepRecord>,
    call: Option<&CallRecord>,
    ask: &BeginCall,
    now: Timestamp,
) -> (Begun, Option<(StepRecord, CallRecord)>) {
    let held = record.filter(|record| record.is_held_by(ask.holder.token, ask.holder.nonce));
    let Some(Standing::InFlight { lease_left }) = held.map(|record| record.standing(now)) else {
        return (Begun::Superseded, None);
    };
    if step.is_some_and(|step| step.request != ask.request) {
        return (Begun::RequestChanged, None);
    }
    if let Some(call) = call {
        return (begun_before(step, call, ask, now), None);
    }
    if let Some(step) = step
        && !may_follow(step, ask.again, now)
    {
        let standing = step.standing(now);
        return (Begun::Stands { call: step.call, token: step.token, standing }, None);
    }
    if lease_left <= ask.lease_needed {
        return (Begun::LeaseTooShort { lease_left }, None);
    }
    let number = step.map_or(1, |step| step.call.saturating_add(1));
    let window_start = step.and_then(|step| step.window_start).unwrap_or(now);
    let deadline = now.after(ask.timeout);
    let begun = StepRecord {
        request: ask.request,
        stored: StepStored::Calling { late: None },
        since: now,
        call: number,
        nonce: ask.nonce,
        token: ask.holder.token,
        deadline,
        quiet_until: deadline.after(ask.quiet),
        window_start: Some(window_start),
        open: step.map_or(0, |step| step.open).saturating_add(1),
        cleared: step.map_or(0, |step| step.cleared),
        resolution: step.and_then(|step| step.resolution.clone()),
    };
    let call = CallRecord { number, token: Some(ask.holder.token), begun_at: now, ended_at: None, end: None };
    (Begun::Go { call: number, window_age: now.since(window_start) }, Some((begun, call)))
}

/// What a nonce is told that began a call before, or was given up.
fn begun_before(step: Option<&StepRecord>, call: &CallRecord, ask: &BeginCall, now: Timestamp) -> Begun {
    match step {
        Some(step)
            if step.nonce == ask.nonce
                && call.end.is_none()
                && matches!(step.standing(now), StepStanding::Calling { .. }) =>
        {
            Begun::Go { call: call.number, window_age: now.since(step.window_start.unwrap_or(now)) }
        }
        _ => Begun::Over,
    }
}

fn may_follow(step: &StepRecord, again: Again, now: Timestamp) -> bool {
    match (step.standing(now), again) {
        (StepStanding::Failed(None) | StepStanding::Retryable, _) => true,
        (StepStanding::Unknown { .. }, Again::Within(window)) => {
            step.window_start.is_none_or(|start| now < start.after(window))
        }
        _ => false,
    }
}

/// Logs how a call ended and what that makes of its step: the answer, and what to write if it is to be written. The step is to
/// be written only if it is given back.
pub fn end(
    record: Option<&Record>,
    step: Option<&StepRecord>,
    call: Option<&CallRecord>,
    report: &EndCall,
    now: Timestamp,
) -> (Ended, Option<(Option<StepRecord>, CallRecord)>) {
    if !record.is_some_and(|record| record.keeps_steps(now)) {
        return (Ended::Missing, None);
    }
    let (step, call) = match (step, call) {
        (_, None) if matches!(report.end, LoggedEnd::NotDone(_)) => {
            let never = CallRecord {
                number: 0,
                token: None,
                begun_at: now,
                ended_at: Some(now),
                end: Some(report.end.clone()),
            };
            return (Ended::NeverBegan, Some((None, never)));
        }
        (_, Some(call)) if call.number == 0 => return (Ended::NeverBegan, None),
        (Some(step), Some(call)) => (step, call),
        _ => return (Ended::Missing, None),
    };
    if call.end.as_ref().is_some_and(|known| known.strength() >= report.end.strength()) {
        return (Ended::Logged { standing: step.standing(now), alarm: None }, None);
    }
    let (step, alarm) = after(step, call, &report.end, now);
    let call = CallRecord { ended_at: Some(now), end: Some(report.end.clone()), ..call.clone() };
    (Ended::Logged { standing: step.standing(now), alarm }, Some((Some(step), call)))
}

/// The step after this evidence of one of its calls.
fn after(step: &StepRecord, call: &CallRecord, end: &LoggedEnd, now: Timestamp) -> (StepRecord, Option<Alarm>) {
    let mut step = step.clone();
    let standing = step.standing(now);
    let is_last = call.number == step.call;
    let certain = |end: &LoggedEnd| end.strength() > 0;
    if certain(end) && !call.end.as_ref().is_some_and(certain) && call.number > step.cleared {
        step.open = step.open.saturating_sub(1);
    }
    let mut alarm = None;
    let stored = match (end, standing) {
        (LoggedEnd::Done(result), StepStanding::Calling { .. }) if is_last => {
            let other = matches!(step.stored, StepStored::Calling { late: Some(_) });
            alarm = other.then_some(Alarm::DoneTwice);
            Some(StepStored::Succeeded(result.clone()))
        }
        (LoggedEnd::Done(result), StepStanding::Calling { .. }) => {
            alarm = Some(Alarm::DoneWhileCalling);
            let known = match &step.stored {
                StepStored::Calling { late } => late.clone(),
                _ => None,
            };
            step.stored = StepStored::Calling { late: Some(known.unwrap_or_else(|| result.clone())) };
            None
        }
        (LoggedEnd::Done(_), StepStanding::Succeeded(known)) => {
            alarm = match call.number {
                cleared if cleared <= step.cleared => Some(Alarm::DoneAfterAll),
                // Resolved as happened: this is what was found out.
                _ if is_last && step.resolution.is_some() => None,
                _ => Some(Alarm::DoneTwice),
            };
            Some(StepStored::Succeeded(known))
        }
        (LoggedEnd::Done(result), StepStanding::Unknown { .. }) => Some(StepStored::Succeeded(result.clone())),
        (LoggedEnd::Done(result), StepStanding::Failed(_) | StepStanding::Retryable) => {
            alarm = Some(Alarm::DoneAfterAll);
            Some(StepStored::Succeeded(result.clone()))
        }
        (LoggedEnd::Unknown(_), StepStanding::Calling { .. }) if is_last => {
            Some(unless_late(&step, StepStored::Unknown))
        }
        (LoggedEnd::NotDone(_) | LoggedEnd::Refused(_), StepStanding::Calling { .. }) if is_last => {
            Some(unless_late(&step, not_done(&step, end)))
        }
        (LoggedEnd::NotDone(_) | LoggedEnd::Refused(_), StepStanding::Unknown { .. }) if step.open == 0 => {
            Some(not_done(&step, end))
        }
        _ => None,
    };
    let sent_nothing = matches!(end, LoggedEnd::NotDone(_)) && matches!(stored, Some(StepStored::Failed(None)));
    if sent_nothing && is_last && step.window_start == Some(call.begun_at) {
        // This call began the window, and nothing reached the provider.
        step.window_start = None;
    }
    if let Some(stored) = stored.filter(|stored| *stored != step.stored) {
        step.stored = stored;
        step.since = now;
    }
    (step, alarm)
}

/// An earlier call that was done outweighs what became of this one.
fn unless_late(step: &StepRecord, stored: StepStored) -> StepStored {
    match &step.stored {
        StepStored::Calling { late: Some(result) } => StepStored::Succeeded(result.clone()),
        _ => stored,
    }
}

/// The last call did not happen, for certain. Did another one?
fn not_done(step: &StepRecord, end: &LoggedEnd) -> StepStored {
    match end {
        _ if step.open > 0 => StepStored::Unknown,
        LoggedEnd::Refused(result) => StepStored::Failed(Some(result.clone())),
        _ => StepStored::Failed(None),
    }
}

/// Resolves a step whose outcome is unknown, if its last call is the one that the resolver saw. That it happened may also be said
/// after somebody said that it did not.
pub fn resolve(
    record: Option<&Record>,
    step: Option<&StepRecord>,
    resolve: &ResolveStep,
    now: Timestamp,
) -> (StepResolved, Option<StepRecord>) {
    let kept = step.filter(|_| record.is_some_and(|record| record.keeps_steps(now)));
    let Some(step) = kept else { return (StepResolved::Missing, None) };
    if step.call != resolve.call_seen {
        return (StepResolved::Superseded, None);
    }
    let mut step = step.clone();
    match (&resolve.verdict, step.standing(now)) {
        (StepVerdict::Happened(result), StepStanding::Unknown { .. } | StepStanding::Retryable) => {
            step.stored = StepStored::Succeeded(result.clone());
        }
        (StepVerdict::DidNotHappen, StepStanding::Unknown { .. }) => {
            step.stored = StepStored::Retryable;
            step.cleared = step.call;
            step.open = 0;
        }
        (_, standing) => return (StepResolved::NotUnknown(standing.state()), None),
    }
    step.since = now;
    step.resolution = Some((resolve.who.clone(), resolve.why.clone()));
    (StepResolved::Applied, Some(step))
}

/// What an operator sees of a step at `now`; none when its record's life is over.
#[must_use]
pub fn entry(
    record: &Record,
    step: &StepRecord,
    (id, label): (RecordId, &StepLabel),
    now: Timestamp,
) -> Option<StepEntry> {
    record.keeps_steps(now).then(|| StepEntry {
        id,
        label: label.clone(),
        state: step.state(now),
        call: step.call,
        token: step.token,
        age: step.age(now),
        resolution: step.resolution.clone(),
    })
}
