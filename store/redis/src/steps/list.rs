//! The steps that operators see.

use std::collections::BTreeMap;

use idempotency::outbound::{ListSteps, StepEntry, StepLabel, StepPage};
use idempotency::{RecordId, StoreError};
use redis::Value;

use super::state;
use crate::db::Db;
use crate::keys::Kind;
use crate::listing::smallest;
use crate::reply::{self, Reply};
use crate::scan::{BATCH, run_on_each};
use crate::scripts;

/// As with records: Redis keeps no order, so a page is the first of all that there are. A record's are looked at together.
pub(crate) async fn list(db: &Db, list: &ListSteps) -> Result<StepPage, StoreError> {
    let mut page = StepPage::default();
    if list.limit == 0 {
        return Ok(page);
    }
    let from = list.after.as_ref().map(|(id, _)| *id);
    let (ids, there_are_more) = match list.id {
        Some(id) => (vec![id], false),
        None => smallest(db, |id| from.is_none_or(|from| id >= from)).await?,
    };
    let mut last = None;
    for batch in ids.chunks(BATCH) {
        let answers = run_on_each(db, Kind::Record, &scripts::STEP_LIST, batch).await?;
        for (id, answer) in batch.iter().zip(answers) {
            for (label, entry) in of_record(*id, answer)? {
                let step = (*id, label);
                if list.after.as_ref().is_some_and(|after| step <= *after) {
                    continue;
                }
                if page.entries.len() == list.limit {
                    page.next = last;
                    return Ok(page);
                }
                page.entries.extend(Some(entry).filter(|entry| list.state.is_none_or(|state| state == entry.state)));
                last = Some(step);
            }
        }
    }
    if let Some(id) = ids.last().filter(|_| there_are_more) {
        // Behind all steps of the last record, whether or not there were any that count.
        page.next = StepLabel::parse(&"~".repeat(StepLabel::LONGEST)).ok().map(|greatest| (*id, greatest));
    }
    Ok(page)
}

/// The steps of a record in the order of their labels, without those that cannot be read.
fn of_record(id: RecordId, answer: Value) -> Result<BTreeMap<StepLabel, StepEntry>, StoreError> {
    let mut reply = Reply::new(answer)?;
    match reply.text()?.as_str() {
        "known" => {}
        "missing" => return Ok(BTreeMap::new()),
        "unreadable" => {
            tracing::error!(%id, "steps that cannot be read are not listed");
            return Ok(BTreeMap::new());
        }
        _ => return Err(reply::unexpected()),
    }
    let mut steps = BTreeMap::new();
    for step in reply.replies()? {
        if let Some(entry) = entry(id, step)? {
            steps.insert(entry.label.clone(), entry);
        } else {
            tracing::error!(%id, "a step that cannot be read is not listed");
        }
    }
    Ok(steps)
}

/// None for one that cannot be read.
fn entry(id: RecordId, mut reply: Reply) -> Result<Option<StepEntry>, StoreError> {
    let label =
        str::from_utf8(&reply.optional_bytes()?.unwrap_or_default()).ok().and_then(|name| StepLabel::parse(name).ok());
    let word = reply.text()?;
    let Some(label) = label.filter(|_| word != "unreadable") else { return Ok(None) };
    Ok(Some(StepEntry {
        id,
        label,
        state: state(&word)?,
        age: reply.duration()?,
        call: reply.number()?,
        token: reply.token()?,
        resolution: Option::zip(reply.optional_text()?, reply.optional_text()?),
    }))
}
