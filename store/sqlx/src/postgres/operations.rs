//! The operations on one record.

use std::sync::Arc;

use idempotency::protocol::{self, Decision};
use idempotency::time::micros;
use idempotency::{Claim, Claimed, Holder, KeyClass, Lease, Outcome, Record, RecordId, Settled, StoreError, Timestamp};
use sqlx::postgres::PgRow;

use super::db::{Db, Query, Tries, Writing};
use super::error::Failure;
use super::group::{Asked, Completion, Found};
use super::{sql, steps};
use crate::prolonging;
use crate::row::{self, Judged};

row::codec!(PgRow, Query);

/// Claims in one trip when nobody has the key. Otherwise the record answers from a plain read, for all at once that met.
/// Only a grant over a record takes its row.
pub(super) async fn claim(db: &Arc<Db>, claim: &Claim) -> Result<Claimed, StoreError> {
    let mut tries = Tries::default();
    loop {
        let answer = claim_once(db, tries.number(), claim).await;
        if let Some(answer) = tries.judge(answer).await? {
            return Ok(answer);
        }
    }
}

async fn claim_once(db: &Arc<Db>, try_: u32, claim: &Claim) -> Result<Claimed, Failure> {
    let judged = match find(db, try_, claim).await? {
        Found::Granted(grant) => return Ok(Claimed::Granted(grant)),
        Found::TooOld => return Ok(Claimed::TooOld),
        Found::Record(judged) => *judged,
    };
    match judged.decide(claim) {
        Decision::Answer(answer) => return Ok(answer),
        Decision::Prolong(tombstone) => {
            prolonging::in_passing(prolong(Arc::clone(db), claim.clone())).await;
            return Ok(Claimed::Executed(tombstone));
        }
        Decision::Grant => {}
    }
    if judged.record()?.is_none() {
        // It was purged between the two.
        return Err(Failure::changed());
    }
    claim_known(db, claim).await
}

/// Claims a key that has no record, or finds its record.
async fn find(db: &Arc<Db>, try_: u32, claim: &Claim) -> Result<Found, Failure> {
    let is_aged = claim.life.age().is_some();
    if try_ == 0 && !is_aged {
        return db.together(Asked(claim.clone())).await;
    }
    let asked = Asked(claim.clone());
    let mut writing = db.begin().await?;
    let granted = asked.granted(&writing.fetch_all(asked.aged(db)).await?)?;
    // It may have waited for a purge of this very key, whose floor is newer than what it saw. If the row is ours now, no other purge of
    // the key is under way, and this look sees what the last one left.
    let judged = row::judged(&writing.fetch_all(read(db, &claim.id, class(claim))).await?)?;
    match granted {
        Some(_) if is_aged && claim.key_time.is_some_and(|time| judged.is_below_floor(time)) => {
            writing.rollback().await?;
            Ok(Found::TooOld)
        }
        Some(grant) => {
            writing.commit().await?;
            Ok(Found::Granted(grant))
        }
        None => {
            writing.rollback().await?;
            Ok(Found::Record(judged.into()))
        }
    }
}

async fn prolong(db: Arc<Db>, claim: Claim) -> Result<Settled, StoreError> {
    settle(&db, &claim.id, |record, now| protocol::prolong(record, &claim, now)).await
}

/// Grants over a record that is free, over, or left behind, if it still is when its row is ours.
async fn claim_known(db: &Db, claim: &Claim) -> Result<Claimed, Failure> {
    let (mut writing, judged) = lock(db, &claim.id, class(claim)).await?;
    if let Some(answer) = judged.decide(claim).answer() {
        writing.rollback().await?;
        return Ok(answer);
    }
    if let Some((class, key_time)) = judged.forgotten() {
        writing.raise_floor(class, key_time).await?;
    }
    if judged.forgets_steps() {
        steps::forget(&mut writing, vec![claim.id.as_bytes().to_vec()]).await?;
    }
    let now = judged.now;
    let Some(record) = judged.record()? else { return Err(Failure::changed()) };
    let (record, grant) = protocol::grant(Some(record), claim, now);
    write(&mut writing, sql::UPDATE_RECORD, &claim.id, &record).await?;
    writing.commit().await?;
    Ok(Claimed::Granted(grant))
}

/// Completes in one trip. Whatever else than `Applied` it is, a transaction tells.
pub(super) async fn complete(db: &Arc<Db>, holder: Holder, outcome: Outcome) -> Result<Settled, StoreError> {
    let completion = || Completion { holder, outcome: outcome.clone() };
    let mut tries = Tries::default();
    let completed = loop {
        let completed = match tries.number() {
            0 => db.together(completion()).await,
            try_ => db.change(try_, completion().alone(db)).await.map(|rows| rows > 0),
        };
        if let Some(completed) = tries.judge(completed).await? {
            break completed;
        }
    };
    if completed {
        return Ok(Settled::Applied);
    }
    settle(db, &holder.id, |record, now| protocol::complete(record, &holder, &outcome, now)).await
}

/// Renews in one trip.
pub(super) async fn renew(db: &Db, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
    if change_held(db, || held(db, sql::RENEW, holder).bind(micros(lease.length()))).await? {
        return Ok(Settled::Applied);
    }
    settle(db, &holder.id, |record, now| protocol::renew(record, holder, lease, now)).await
}

/// A statement about what its holder holds.
fn held(db: &Db, statement: &'static str, holder: &Holder) -> Query {
    db.timed(statement)
        .bind(holder.id.as_bytes().as_slice())
        .bind(holder.nonce.as_bytes().as_slice())
        .bind(row::token_number(holder.token))
        .bind(row::FORMAT)
}

/// Whether the statement found what it changes.
async fn change_held(db: &Db, statement: impl Fn() -> Query) -> Result<bool, StoreError> {
    let mut tries = Tries::default();
    loop {
        let changed = db.change(tries.number(), statement()).await;
        if let Some(changed) = tries.judge(changed).await? {
            return Ok(changed > 0);
        }
    }
}

pub(super) async fn settle(
    db: &Db,
    id: &RecordId,
    decide: impl Fn(Option<&mut Record>, Timestamp) -> Settled,
) -> Result<Settled, StoreError> {
    change(db, id, |mut record, now| {
        let settled = decide(record.as_mut(), now);
        (settled, record.filter(|_| settled == Settled::Applied))
    })
    .await
}

/// Carries out what changes one row or leaves it alone: `decide` is given the record and the clock, both as they are with
/// the row locked, and gives its answer and the record to write, if it is to be written.
pub(super) async fn change<T>(
    db: &Db,
    id: &RecordId,
    decide: impl Fn(Option<Record>, Timestamp) -> (T, Option<Record>),
) -> Result<T, StoreError> {
    let mut tries = Tries::default();
    loop {
        let answer = change_once(db, id, &decide).await;
        if let Some(answer) = tries.judge(answer).await? {
            return Ok(answer);
        }
    }
}

async fn change_once<T>(
    db: &Db,
    id: &RecordId,
    decide: &impl Fn(Option<Record>, Timestamp) -> (T, Option<Record>),
) -> Result<T, Failure> {
    let (mut writing, judged) = lock(db, id, None).await?;
    let now = judged.now;
    let found = judged.record()?;
    let statement = if found.is_some() { sql::UPDATE_RECORD } else { sql::INSERT_RECORD };
    let (answer, record) = decide(found, now);
    match record {
        Some(record) => {
            write(&mut writing, statement, id, &record).await?;
            writing.commit().await?;
        }
        None => writing.rollback().await?,
    }
    Ok(answer)
}

/// Takes the row, if there is one, and then reads it and what it is judged by.
pub(super) async fn lock<'d>(
    db: &'d Db,
    id: &RecordId,
    class: Option<&KeyClass>,
) -> Result<(Writing<'d>, Judged), Failure> {
    let mut writing = db.begin().await?;
    let locked = writing.lock(id).await?;
    let judged = row::judged(&writing.fetch_all(read(db, id, class)).await?)?;
    if judged.is_there() && !locked {
        // It was made between the two statements, so it is not ours: whoever has it would be written over.
        return Err(Failure::changed());
    }
    Ok((writing, judged))
}

/// Writes a record. That nothing was written means that somebody was first, where there was no row to lock.
async fn write(
    writing: &mut Writing<'_>,
    statement: &'static str,
    id: &RecordId,
    record: &Record,
) -> Result<(), Failure> {
    let statement = row::write(writing.db.query(statement), id, record);
    if writing.execute(statement).await? == 0 {
        return Err(Failure::changed());
    }
    Ok(())
}

fn read(db: &Db, id: &RecordId, class: Option<&KeyClass>) -> Query {
    db.timed(sql::READ_RECORD).bind(id.as_bytes().as_slice()).bind(class.map(KeyClass::as_str))
}

fn class(claim: &Claim) -> Option<&KeyClass> {
    claim.life.age().map(|age| &age.class)
}
