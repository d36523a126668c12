//! The operations: each reads a row, has the protocol decide, and writes the row back.

use idempotency::protocol::{self, Decision};
use idempotency::{AgeLimit, Claim, Claimed, Record, RecordId, StoreError, Timestamp};
use sqlx::sqlite::SqliteRow;

use super::db::{Db, End, Writing};
use super::{row, steps};

/// Decides a claim twice: on a plain read, which nobody's write transaction blocks and which answers whatever needs no
/// write; and only for a grant again under the write lock, because everything may have changed in between.
pub(super) async fn claim(db: &Db, claim: &Claim) -> Result<Claimed, StoreError> {
    let class = claim.life.age().map(|age: &AgeLimit| &age.class);
    let rows = db.read(|| row::read(&claim.id, class, db.given_now())).await?;
    if let Decision::Answer(answer) = row::judged(&rows)?.decide(claim) {
        return Ok(answer);
    }
    let (mut writing, rows) = db.begin(|given_now| row::begin_and_read(&claim.id, class, given_now)).await?;
    let end = grant(&mut writing, &rows, claim).await;
    writing.finish(end).await
}

async fn grant(writing: &mut Writing<'_>, rows: &[SqliteRow], claim: &Claim) -> Result<End<Claimed>, StoreError> {
    let judged = row::judged(rows)?;
    if let Decision::Answer(answer) = judged.decide(claim) {
        return Ok(End::Rollback(answer));
    }
    if let Some((class, key_time)) = judged.forgotten() {
        writing.raise_floor(class, key_time).await?;
    }
    if judged.forgets_steps() {
        steps::forget(writing, &claim.id).await?;
    }
    let now = judged.now;
    let (record, grant) = protocol::grant(judged.record()?, claim, now);
    Ok(End::Commit(row::write_and_commit(&claim.id, &record), Claimed::Granted(grant)))
}

/// Carries out what changes one row or leaves it alone and has no second look: `decide` is given the record and the
/// clock, both under the write lock, and gives its answer and the record to write, if it is to be written.
pub(super) async fn change<T>(
    db: &Db,
    id: &RecordId,
    decide: impl FnOnce(Option<Record>, Timestamp) -> (T, Option<Record>),
) -> Result<T, StoreError> {
    let (writing, rows) = db.begin(|given_now| row::begin_and_read(id, None, given_now)).await?;
    let end = row::judged(&rows).and_then(|judged| {
        let now = judged.now;
        Ok(match decide(judged.record()?, now) {
            (answer, Some(record)) => End::Commit(row::write_and_commit(id, &record), answer),
            (answer, None) => End::Rollback(answer),
        })
    });
    writing.finish(end).await
}
