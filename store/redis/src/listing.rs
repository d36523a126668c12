//! What operators see.

use std::collections::BTreeSet;
use std::time::Duration;

use idempotency::{Entry, List, Page, RecordId, State, StoreError};
use redis::Value;

use crate::db::Db;
use crate::keys::Kind;
use crate::reply::{self, Reply};
use crate::scan::{BATCH, Walk, run_on_each};
use crate::scripts;

pub(crate) async fn inspect(db: &Db, id: &RecordId) -> Result<Option<Entry>, StoreError> {
    entry(*id, db.run(&scripts::INSPECT, &db.keys.record(id), |_| {}).await?)
}

/// Redis keeps no order, so a page is the smallest ids of all that there are.
pub(crate) async fn list(db: &Db, list: &List) -> Result<Page, StoreError> {
    let mut page = Page::default();
    if list.limit == 0 {
        return Ok(page);
    }
    let (ids, there_are_more) = smallest(db, |id| list.after.is_none_or(|after| id > after)).await?;
    let last = ids.last().copied();
    for batch in ids.chunks(BATCH) {
        let answers = run_on_each(db, Kind::Record, &scripts::INSPECT, batch).await?;
        for (id, answer) in batch.iter().zip(answers) {
            let entry = entry(*id, answer)?;
            page.entries.extend(entry.filter(|entry| list.state.is_none_or(|state| state == entry.state)));
            if page.entries.len() == list.limit {
                page.next = Some(*id).filter(|_| there_are_more || Some(*id) != last);
                return Ok(page);
            }
        }
    }
    page.next = last.filter(|_| there_are_more);
    Ok(page)
}

/// The smallest ids of those that are wanted, in order, and whether there are larger ones.
pub(crate) async fn smallest(db: &Db, wanted: impl Fn(RecordId) -> bool) -> Result<(Vec<RecordId>, bool), StoreError> {
    let mut ids = BTreeSet::new();
    let mut there_are_more = false;
    let mut walk = Walk::begin(db, Kind::Record).await?;
    while walk.step(db).await? {
        for id in walk.met.drain(..).filter(|id| wanted(*id)) {
            ids.insert(id);
            if ids.len() > MOST_SEEN {
                ids.pop_last();
                there_are_more = true;
            }
        }
    }
    Ok((ids.into_iter().collect(), there_are_more))
}

/// What an operator sees; none when the record's life is over. One that cannot be read is shown as in doubt, since nobody
/// here can say what became of it; only its id is certain.
fn entry(id: RecordId, answer: Value) -> Result<Option<Entry>, StoreError> {
    let mut reply = Reply::new(answer)?;
    let word = reply.text()?;
    if word == "unreadable" {
        tracing::warn!(%id, "listed an unreadable record as in doubt");
        let nothing = Entry {
            id,
            state: State::InDoubt,
            token: None,
            attempt: 0,
            age: Duration::ZERO,
            status: None,
            resolution: None,
        };
        return Ok(Some(nothing));
    }
    let Some(state) = state(&word)? else { return Ok(None) };
    Ok(Some(Entry {
        id,
        state,
        token: reply.optional_token()?,
        attempt: reply.number()?,
        age: reply.duration()?,
        status: reply.optional_number()?,
        resolution: Option::zip(reply.optional_text()?, reply.optional_text()?),
    }))
}

/// The state that a script names; none for a record whose life is over.
pub(crate) fn state(word: &str) -> Result<Option<State>, StoreError> {
    match word {
        "absent" => Ok(None),
        "in flight" => Ok(Some(State::InFlight)),
        "completed" => Ok(Some(State::Completed)),
        "tombstone" => Ok(Some(State::Tombstone)),
        "in doubt" => Ok(Some(State::InDoubt)),
        "released" => Ok(Some(State::Released)),
        other => Err(reply::not(other)),
    }
}

/// So many records are looked at for a page, which is then handed out, full or not.
const MOST_SEEN: usize = 10_000;
