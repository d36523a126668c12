//! Steps and calls as rows, the same in every database.

use std::time::Duration;

use bytes::Bytes;
use idempotency::outbound::{
    BeginCall, Begun, CallRecord, EndCall, Ended, ListSteps, LoggedEnd, ResolveStep, StepEntry, StepLabel, StepPage,
    StepRecord, StepResolved, StepResult, StepStored, StepView, protocol,
};
use idempotency::{Fingerprint, Nonce, Record, RecordId, StoreError, Stored, Timestamp};

use crate::row::{self, Columns, Unreadable, Values, blob, bytes, integer, needed, number, text};

/// An operation on a step: what it reads, and what it decides.
pub(crate) trait StepOperation: Send + Sync + 'static {
    type Answer: Send + 'static;

    fn id(&self) -> &RecordId;
    fn label(&self) -> &StepLabel;
    /// The call it is about, if it is about one.
    fn nonce(&self) -> Option<Nonce>;
    fn decide(
        &self,
        record: Option<&Record>,
        step: Option<&StepRecord>,
        call: Option<&CallRecord>,
        now: Timestamp,
    ) -> (Self::Answer, Written);
}

/// What an operation writes.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) step: Option<StepRecord>,
    pub(crate) call: Option<CallRecord>,
}

impl Written {
    pub(crate) fn is_nothing(&self) -> bool {
        self.step.is_none() && self.call.is_none()
    }
}

impl StepOperation for BeginCall {
    type Answer = Begun;

    fn id(&self) -> &RecordId {
        &self.holder.id
    }
    fn label(&self) -> &StepLabel {
        &self.label
    }
    fn nonce(&self) -> Option<Nonce> {
        Some(self.nonce)
    }
    fn decide(
        &self,
        record: Option<&Record>,
        step: Option<&StepRecord>,
        call: Option<&CallRecord>,
        now: Timestamp,
    ) -> (Begun, Written) {
        let (begun, written) = protocol::begin(record, step, call, self, now);
        let (step, call) = written.unzip();
        (begun, Written { step, call })
    }
}

impl StepOperation for EndCall {
    type Answer = Ended;

    fn id(&self) -> &RecordId {
        &self.id
    }
    fn label(&self) -> &StepLabel {
        &self.label
    }
    fn nonce(&self) -> Option<Nonce> {
        Some(self.nonce)
    }
    fn decide(
        &self,
        record: Option<&Record>,
        step: Option<&StepRecord>,
        call: Option<&CallRecord>,
        now: Timestamp,
    ) -> (Ended, Written) {
        let (ended, written) = protocol::end(record, step, call, self, now);
        let (step, call) = written.unzip();
        (ended, Written { step: step.flatten(), call })
    }
}

impl StepOperation for ResolveStep {
    type Answer = StepResolved;

    fn id(&self) -> &RecordId {
        &self.id
    }
    fn label(&self) -> &StepLabel {
        &self.label
    }
    fn nonce(&self) -> Option<Nonce> {
        None
    }
    fn decide(
        &self,
        record: Option<&Record>,
        step: Option<&StepRecord>,
        _: Option<&CallRecord>,
        now: Timestamp,
    ) -> (StepResolved, Written) {
        let (resolved, step) = protocol::resolve(record, step, self, now);
        (resolved, Written { step, call: None })
    }
}

/// The step that was read, if there is one.
pub(crate) fn step(rows: &[impl Columns]) -> Result<Option<StepRecord>, StoreError> {
    rows.first().map(read_step).transpose().map_err(row::refuse)
}

/// The call that was read, if there is one.
pub(crate) fn call(rows: &[impl Columns]) -> Result<Option<CallRecord>, StoreError> {
    rows.first().map(read_call).transpose().map_err(row::refuse)
}

/// Whether a sweep is to leave a released record alone because of its steps, and until when.
pub(crate) fn kept_for_steps(
    row: &impl Columns,
    record: &Record,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let released = matches!(record.stored, Stored::Released);
    let kept = released && has_calls(row)? && record.keeps_steps(now);
    Ok(kept.then(|| record.steps_kept_until().after(Duration::from_micros(1))))
}

/// Whether anything was called under this record.
pub(crate) fn has_calls(row: &impl Columns) -> Result<bool, StoreError> {
    Ok(integer(row, "has_calls").map_err(row::refuse)?.is_some_and(|has| has != 0))
}

/// A step with its calls, as the statements that read them came to.
pub(crate) fn view(steps: &[impl Columns], calls: &[impl Columns]) -> Result<Option<StepView>, StoreError> {
    let Some(row) = steps.first() else { return Ok(None) };
    let step = read_step(row).map_err(row::refuse)?;
    let now = row::now(row)?;
    let Some(entry) = entry(row)? else { return Ok(None) };
    let calls = calls.iter().map(read_call).collect::<Result<_, _>>().map_err(row::refuse)?;
    Ok(Some(StepView { entry, standing: step.standing(now), calls }))
}

fn entry(row: &impl Columns) -> Result<Option<StepEntry>, StoreError> {
    let (id, now) = (row::id(row)?, row::now(row)?);
    let read = || Ok((row::record(row)?, read_step(row)?, read_label(row)?));
    let (record, step, label) = read().map_err(row::refuse)?;
    Ok(protocol::entry(&record, &step, (id, &label), now))
}

fn read_label(row: &impl Columns) -> Result<StepLabel, Unreadable> {
    let label = std::str::from_utf8(needed(blob, row, "label")?).map_err(|_| Unreadable::Value("label"))?;
    StepLabel::parse(label).map_err(|_| Unreadable::Value("label"))
}

/// A database whose steps can be listed.
pub(crate) trait ListedSteps {
    type Row: Columns;

    /// The rows after a step, of one record or of all, at most so many.
    fn steps_after(
        &self,
        id: Option<RecordId>,
        after: Option<&(RecordId, StepLabel)>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;
}

/// Fills a page in batches: a state is judged by the clock, so it cannot be looked up.
pub(crate) async fn list(db: &impl ListedSteps, list: &ListSteps) -> Result<StepPage, StoreError> {
    let mut page = StepPage::default();
    let mut after = list.after.clone();
    let mut seen = 0;
    while page.entries.len() < list.limit {
        let rows = db.steps_after(list.id, after.as_ref(), BATCH).await?;
        for (index, row) in rows.iter().enumerate() {
            after = Some((row::id(row)?, read_label(row).map_err(row::refuse)?));
            match entry(row) {
                Ok(entry) => {
                    page.entries.extend(entry.filter(|entry| list.state.is_none_or(|state| state == entry.state)));
                }
                Err(error) => tracing::error!(step = ?after, %error, "a step that cannot be read is not listed"),
            }
            if page.entries.len() == list.limit {
                page.next = after.filter(|_| index + 1 < rows.len() || rows.len() == BATCH);
                return Ok(page);
            }
        }
        seen += rows.len();
        if rows.len() < BATCH {
            break;
        }
        if seen >= MOST_SEEN {
            page.next = after;
            break;
        }
    }
    Ok(page)
}

const BATCH: usize = 200;

/// After so many rows a page is handed out, full or not.
const MOST_SEEN: usize = 10_000;

fn read_step(row: &impl Columns) -> Result<StepRecord, Unreadable> {
    let format = needed(integer, row, "step_format")?;
    if format != row::FORMAT {
        return Err(Unreadable::Format(format));
    }
    let time = |name| needed(integer, row, name).map(Timestamp::from_micros);
    let result = result(row)?;
    let stored = match (needed(text, row, "step_state")?, result) {
        (CALLING, late) => StepStored::Calling { late },
        (SUCCEEDED, Some(result)) => StepStored::Succeeded(result),
        (FAILED, result) => StepStored::Failed(result),
        (UNKNOWN, None) => StepStored::Unknown,
        (RETRYABLE, None) => StepStored::Retryable,
        _ => return Err(Unreadable::Value("step_state")),
    };
    Ok(StepRecord {
        request: Fingerprint::from_bytes(bytes(row, "request")?),
        stored,
        since: time("step_since")?,
        call: number(row, "last_call")?,
        nonce: Nonce::from_bytes(bytes(row, "step_nonce")?),
        token: row::token(needed(integer, row, "step_token")?).ok_or(Unreadable::Value("step_token"))?,
        deadline: time("deadline")?,
        quiet_until: time("quiet_until")?,
        window_start: integer(row, "window_start")?.map(Timestamp::from_micros),
        open: number(row, "open_calls")?,
        cleared: number(row, "cleared_calls")?,
        resolution: Option::zip(
            text(row, "step_resolved_by")?.map(ToOwned::to_owned),
            text(row, "step_resolved_why")?.map(ToOwned::to_owned),
        ),
    })
}

fn result(row: &impl Columns) -> Result<Option<StepResult>, Unreadable> {
    match integer(row, "kept")? {
        None => Ok(None),
        Some(0) => Ok(Some(StepResult::TooLong)),
        Some(_) => Ok(Some(StepResult::Kept(Bytes::copy_from_slice(needed(blob, row, "result")?)))),
    }
}

fn read_call(row: &impl Columns) -> Result<CallRecord, Unreadable> {
    let why = || text(row, "why").map(|why| why.unwrap_or_default().to_owned());
    let kept = || result(row)?.ok_or(Unreadable::Value("kept"));
    let end = match text(row, "ending")? {
        None => None,
        Some(UNKNOWN) => Some(LoggedEnd::Unknown(why()?)),
        Some(NOT_DONE) => Some(LoggedEnd::NotDone(why()?)),
        Some(REFUSED) => Some(LoggedEnd::Refused(kept()?)),
        Some(DONE) => Some(LoggedEnd::Done(kept()?)),
        Some(_) => return Err(Unreadable::Value("ending")),
    };
    Ok(CallRecord {
        number: number(row, "number")?,
        token: integer(row, "token")?.map(|number| row::token(number).ok_or(Unreadable::Value("token"))).transpose()?,
        begun_at: Timestamp::from_micros(needed(integer, row, "begun_at")?),
        ended_at: integer(row, "ended_at")?.map(Timestamp::from_micros),
        end,
    })
}

/// Binds a step to a statement that writes it, in the order of the table's columns.
pub(crate) fn write_step<Q: Values>(statement: Q, id: &RecordId, label: &StepLabel, step: &StepRecord) -> Q {
    let (state, result) = match &step.stored {
        StepStored::Calling { late } => (CALLING, late.as_ref()),
        StepStored::Succeeded(result) => (SUCCEEDED, Some(result)),
        StepStored::Failed(result) => (FAILED, result.as_ref()),
        StepStored::Unknown => (UNKNOWN, None),
        StepStored::Retryable => (RETRYABLE, None),
    };
    let resolution = step.resolution.as_ref();
    let statement = key(statement, id, label)
        .integer(Some(row::FORMAT))
        .blob(Some(&step.request.to_bytes()))
        .text(Some(state))
        .integer(Some(step.since.micros()))
        .integer(Some(step.call.into()))
        .blob(Some(step.nonce.as_bytes()))
        .integer(Some(row::token_number(step.token)))
        .integer(Some(step.deadline.micros()))
        .integer(Some(step.quiet_until.micros()))
        .integer(step.window_start.map(Timestamp::micros))
        .integer(Some(step.open.into()))
        .integer(Some(step.cleared.into()))
        .text(resolution.map(|(who, _)| who.as_str()))
        .text(resolution.map(|(_, why)| why.as_str()));
    write_result(statement, result)
}

/// The same for a call.
pub(crate) fn write_call<Q: Values>(
    statement: Q,
    id: &RecordId,
    label: &StepLabel,
    nonce: Nonce,
    call: &CallRecord,
) -> Q {
    let (ending, why, result) = match &call.end {
        None => (None, None, None),
        Some(LoggedEnd::Unknown(why)) => (Some(UNKNOWN), Some(why), None),
        Some(LoggedEnd::NotDone(why)) => (Some(NOT_DONE), Some(why), None),
        Some(LoggedEnd::Refused(result)) => (Some(REFUSED), None, Some(result)),
        Some(LoggedEnd::Done(result)) => (Some(DONE), None, Some(result)),
    };
    let statement = key(statement, id, label)
        .blob(Some(nonce.as_bytes()))
        .integer(Some(call.number.into()))
        .integer(call.token.map(row::token_number))
        .integer(Some(call.begun_at.micros()))
        .integer(call.ended_at.map(Timestamp::micros))
        .text(ending)
        .text(why.map(String::as_str));
    write_result(statement, result)
}

/// Binds which step.
pub(crate) fn key<Q: Values>(statement: Q, id: &RecordId, label: &StepLabel) -> Q {
    statement.blob(Some(id.as_bytes())).blob(Some(label.as_str().as_bytes()))
}

fn write_result<Q: Values>(statement: Q, result: Option<&StepResult>) -> Q {
    statement
        .integer(result.map(|result| i64::from(result.bytes().is_some())))
        .blob(result.and_then(StepResult::bytes).map(|bytes| bytes.as_ref()))
}

const CALLING: &str = "calling";
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";
const UNKNOWN: &str = "unknown";
const RETRYABLE: &str = "retryable";
const NOT_DONE: &str = "not-done";
const REFUSED: &str = "refused";
const DONE: &str = "done";
