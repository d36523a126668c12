//! The operations: each reads a row, has the protocol decide, and writes the row back.

use std::sync::Arc;

use idempotency::protocol::{self, Decision};
use idempotency::{Claim, Claimed, Holder, KeyClass, Outcome, Record, RecordId, Settled, StoreError, Timestamp};

use sqlx::sqlite::SqliteRow;

use super::connections::Lent;
use super::db::Db;
use super::group::{Shortly, Written};
use super::row;
use super::short::{self, Short};
use crate::queue::GROUP_SIZE;
use crate::row::Judged;
use crate::{prolonging, task};

/// A claim that comes alone is carried out in one trip, where nobody has the key or the record answers. Others are decided twice: on a
/// plain read, which nobody's write transaction blocks and which answers whatever needs no write; and only for a grant again under
/// the write lock, because everything may have changed in between.
pub(super) async fn claim(db: &Arc<Db>, claim: &Claim) -> Result<Claimed, StoreError> {
    if claim.life.age().is_none()
        && let Some(writer) = db.writer_at_once()
    {
        let (db, claim) = (Arc::clone(db), claim.clone());
        if let Some(answer) = task::run(async move { claim_alone(&db, writer, &claim).await }).await? {
            return Ok(answer);
        }
    }
    let class = claim.life.age().map(|age| age.class.clone());
    match db.look(claim.id, class.clone()).await?.decide(claim) {
        Decision::Answer(answer) => return Ok(answer),
        Decision::Prolong(tombstone) => {
            let (db, claim) = (Arc::clone(db), claim.clone());
            prolonging::in_passing(prolong(db, claim)).await;
            return Ok(Claimed::Executed(tombstone));
        }
        Decision::Grant => {}
    }
    let (id, claim) = (claim.id, Arc::new(claim.clone()));
    let shortly = claim.life.age().is_none().then(|| {
        let asked = Arc::clone(&claim);
        let answer = move |row: &SqliteRow| short::granted(row, &asked);
        Shortly { short: Short::Claim(Arc::clone(&claim)), answer: Box::new(answer) }
    });
    db.change(id, class, shortly, move |judged| grant(judged, &claim)).await
}

/// None: somebody else writes to the file, or it takes more than that to answer. Then nothing was carried out.
async fn claim_alone(db: &Db, writer: Lent, claim: &Claim) -> Result<Option<Claimed>, StoreError> {
    let Some(rows) = writer.fetch_all(short::read_and_claim(claim, db.given_now())).await? else { return Ok(None) };
    if let Some(granted) = rows.get(1) {
        metrics::histogram!(GROUP_SIZE).record(1);
        return short::granted(granted, claim).map(Some);
    }
    match row::judged(&rows)?.decide(claim) {
        Decision::Answer(answer) => Ok(Some(answer)),
        Decision::Prolong(_) | Decision::Grant => Ok(None),
    }
}

fn grant(judged: Judged, claim: &Claim) -> Result<(Claimed, Option<Written>), StoreError> {
    if let Some(answer) = judged.decide(claim).answer() {
        return Ok((answer, None));
    }
    let floor = judged.forgotten().map(|(class, key_time): (&KeyClass, Timestamp)| (class.clone(), key_time));
    let forgets_steps = judged.forgets_steps();
    let now = judged.now;
    let (record, grant) = protocol::grant(judged.record()?, claim, now);
    Ok((Claimed::Granted(grant), Some(Written { record, floor, forgets_steps })))
}

async fn prolong(db: Arc<Db>, claim: Claim) -> Result<Settled, StoreError> {
    settle(&db, claim.id, move |record, now| protocol::prolong(record, &claim, now)).await
}

/// A completion that comes alone is one statement. Whatever else than `Applied` it is, a transaction tells.
pub(super) async fn complete(db: &Arc<Db>, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
    let (holder, outcome) = (*holder, outcome.clone());
    let Some(writer) = db.writer_at_once() else { return complete_together(db, holder, outcome).await };
    let db = Arc::clone(db);
    task::run(async move {
        if complete_alone(&db, writer, &holder, &outcome).await? {
            return Ok(Settled::Applied);
        }
        complete_together(&db, holder, outcome).await
    })
    .await
}

async fn complete_alone(db: &Db, writer: Lent, holder: &Holder, outcome: &Outcome) -> Result<bool, StoreError> {
    let completed = writer.fetch_all(short::complete(holder, outcome, db.given_now())).await?;
    let completed = completed.is_some_and(|rows| !rows.is_empty());
    if completed {
        metrics::histogram!(GROUP_SIZE).record(1);
    }
    Ok(completed)
}

async fn complete_together(db: &Arc<Db>, holder: Holder, outcome: Outcome) -> Result<Settled, StoreError> {
    let short = Short::Completion(holder, outcome.clone());
    let shortly = Shortly { short, answer: Box::new(|_| Ok(Settled::Applied)) };
    let complete = move |record: Option<&mut Record>, now| protocol::complete(record, &holder, &outcome, now);
    db.change(holder.id, None, Some(shortly), move |judged| settled(judged, &complete)).await
}

pub(super) async fn settle(
    db: &Arc<Db>,
    id: RecordId,
    decide: impl Fn(Option<&mut Record>, Timestamp) -> Settled + Send + Sync + 'static,
) -> Result<Settled, StoreError> {
    db.change(id, None, None, move |judged| settled(judged, &decide)).await
}

fn settled(
    judged: Judged,
    decide: impl Fn(Option<&mut Record>, Timestamp) -> Settled,
) -> Result<(Settled, Option<Written>), StoreError> {
    let now = judged.now;
    let mut record = judged.record()?;
    let settled = decide(record.as_mut(), now);
    Ok((settled, record.filter(|_| settled == Settled::Applied).map(Written::from)))
}

/// Carries out what changes one row or leaves it alone and has no second look: `decide` is given the record and the
/// clock, both under the write lock, and gives its answer and the record to write, if it is to be written.
pub(super) async fn change<T: Send + Sync + 'static>(
    db: &Arc<Db>,
    id: RecordId,
    decide: impl Fn(Option<Record>, Timestamp) -> (T, Option<Record>) + Send + Sync + 'static,
) -> Result<T, StoreError> {
    db.change(id, None, None, move |judged| {
        let now = judged.now;
        let (answer, record) = decide(judged.record()?, now);
        Ok((answer, record.map(Written::from)))
    })
    .await
}
