//! The operations on one record.

use std::sync::Arc;

use idempotency::protocol::{self, Decision};
use idempotency::time::micros;
use idempotency::{
    Claim, Claimed, Holder, KeyClass, Outcome, Record, RecordId, Settled, StoreError, StoreErrorKind, TOKEN_HOLD,
    Timestamp,
};

use super::db::{Db, Query, Tries, Writing};
use super::error::Failure;
use super::{sql, steps};
use crate::prolonging;
use crate::row::{self, Judged};

/// Claims on a plain read, which nobody's lock blocks and which answers whatever needs no write. Only a grant writes: where
/// there is no row, an insert, of which the primary key lets one through; over a row, under its lock.
pub(super) async fn claim(db: &Arc<Db>, claim: &Claim) -> Result<Claimed, StoreError> {
    if class(claim).is_some_and(|class| class.as_str().len() > LONGEST_CLASS) {
        return Err(StoreError::new(StoreErrorKind::Refused, "a key class's name has more than 255 bytes"));
    }
    let mut tries = Tries::new();
    loop {
        let answer = claim_once(db, claim).await;
        if let Some(answer) = tries.judge(answer).await? {
            return Ok(answer);
        }
    }
}

async fn claim_once(db: &Arc<Db>, claim: &Claim) -> Result<Claimed, Failure> {
    let judged = row::judged(&db.read(read(db, &claim.id, class(claim))).await?)?;
    match judged.decide(claim) {
        Decision::Answer(answer) => return Ok(answer),
        Decision::Prolong(tombstone) => {
            prolonging::in_passing(prolong(Arc::clone(db), claim.clone())).await;
            return Ok(Claimed::Executed(tombstone));
        }
        Decision::Grant => {}
    }
    if judged.record()?.is_some() {
        return claim_known(db, claim).await;
    }
    if db.own_sessions() && claim.life.age().is_none() {
        db.change(claim_absent(db, claim)).await?;
        return told(&row::judged(&db.read(read(db, &claim.id, class(claim))).await?)?, claim);
    }
    let mut writing = db.begin().await?;
    writing.execute(claim_absent(db, claim)).await?;
    let judged = row::judged(&writing.fetch_all(read(db, &claim.id, class(claim))).await?)?;
    // The insert may have waited for a purge of this very key, whose floor is newer than what it saw. Now that the row is ours,
    // no other purge of the key is under way, and this read sees what the last one left.
    if claim.life.age().is_some() && claim.key_time.is_some_and(|time| judged.is_below_floor(time)) {
        writing.rollback().await?;
        return Ok(Claimed::TooOld);
    }
    let answer = told(&judged, claim)?;
    writing.commit().await?;
    Ok(answer)
}

/// What the record says after an insert: granted, if it has this claim's nonce.
fn told(judged: &Judged, claim: &Claim) -> Result<Claimed, Failure> {
    judged.decide(claim).answer().ok_or_else(Failure::changed)
}

/// The statement that claims a key which has no record, if its age allows it.
fn claim_absent(db: &Db, claim: &Claim) -> Query {
    let statement = db
        .timed(sql::CLAIM)
        .bind(claim.id.as_bytes().as_slice())
        .bind(row::FORMAT)
        .bind(claim.fingerprint.to_bytes().as_slice())
        .bind(claim.nonce.as_bytes().as_slice())
        .bind(micros(claim.lease.length()));
    let statement = row::write_life(statement, Some(&claim.life)).bind(claim.key_time.map(Timestamp::micros));
    statement.bind(micros(TOKEN_HOLD)).bind(row::early(&claim.life).map(micros))
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
        steps::forget(&mut writing, &claim.id).await?;
    }
    let now = judged.now;
    // Purged between the two.
    let Some(record) = judged.record()? else { return Err(Failure::changed()) };
    let (record, grant) = protocol::grant(Some(record), claim, now);
    update(&mut writing, &claim.id, &record).await?;
    writing.commit().await?;
    Ok(Claimed::Granted(grant))
}

/// Completes in one statement. Whatever else than `Applied` it is, a transaction tells.
pub(super) async fn complete(db: &Db, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
    let mut tries = Tries::new();
    loop {
        let changed = db.change(completion(db, holder, outcome)).await;
        match tries.judge(changed).await? {
            // Its state changed, so a row that was found was changed, whatever the driver counts.
            Some(1..) => return Ok(Settled::Applied),
            Some(0) => break,
            None => {}
        }
    }
    settle(db, &holder.id, |record, now| protocol::complete(record, holder, outcome, now)).await
}

/// The statement that completes what its holder still holds.
pub(super) fn completion(db: &Db, holder: &Holder, outcome: &Outcome) -> Query {
    let now = db.given_now();
    sqlx::query(sql::COMPLETE)
        .bind(now)
        .bind(i64::from(outcome.status()))
        .bind(outcome.location())
        .bind(outcome.payload().map(|payload| payload.as_ref()))
        .bind(now)
        .bind(i64::from(outcome.payload().is_some()))
        .bind(holder.id.as_bytes().as_slice())
        .bind(holder.nonce.as_bytes().as_slice())
        .bind(row::token_number(holder.token))
        .bind(row::FORMAT)
        .bind(now)
}

/// The same for a transaction that was opened then.
pub(super) fn completion_in_transaction(db: &Db, opened: Timestamp, holder: &Holder, outcome: &Outcome) -> Query {
    let (now, opened) = (db.given_now(), opened.micros());
    sqlx::query(sql::COMPLETE_IN_TRANSACTION)
        .bind(now)
        .bind(opened)
        .bind(i64::from(outcome.status()))
        .bind(outcome.location())
        .bind(outcome.payload().map(|payload| payload.as_ref()))
        .bind(now)
        .bind(opened)
        .bind(i64::from(outcome.payload().is_some()))
        .bind(holder.id.as_bytes().as_slice())
        .bind(holder.nonce.as_bytes().as_slice())
        .bind(row::token_number(holder.token))
        .bind(row::FORMAT)
        .bind(now)
        .bind(opened)
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
    let mut tries = Tries::new();
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
    let was_there = found.is_some();
    let (answer, record) = decide(found, now);
    match record {
        None => writing.rollback().await?,
        Some(record) => {
            if was_there {
                update(&mut writing, id, &record).await?;
            } else {
                // There was no row to lock, so somebody may be first: an error.
                writing.execute(row::write(sqlx::query(sql::INSERT_RECORD), id, &record)).await?;
            }
            writing.commit().await?;
        }
    }
    Ok(answer)
}

/// Takes the row, if there is one, and then reads it and what it is judged by.
pub(super) async fn lock(db: &Db, id: &RecordId, class: Option<&KeyClass>) -> Result<(Writing, Judged), Failure> {
    let mut writing = db.begin().await?;
    let locked = writing.lock(id).await?;
    let judged = row::judged(&writing.fetch_all(read(db, id, class)).await?)?;
    if judged.is_there() && !locked {
        // It was made between the two statements, so it is not ours: whoever has it would be written over.
        return Err(Failure::changed());
    }
    Ok((writing, judged))
}

/// Writes a record over its row, which is locked.
async fn update(writing: &mut Writing, id: &RecordId, record: &Record) -> Result<(), Failure> {
    let statement = row::write_record(sqlx::query(sql::UPDATE_RECORD), record);
    let statement = statement.bind(id.as_bytes().as_slice()).bind(row::FORMAT);
    if writing.execute(statement).await? == 0 {
        return Err(Failure::changed());
    }
    Ok(())
}

fn read(db: &Db, id: &RecordId, class: Option<&KeyClass>) -> Query {
    db.timed(sql::READ_RECORD).bind(class.map(|class| class.as_str().as_bytes())).bind(id.as_bytes().as_slice())
}

fn class(claim: &Claim) -> Option<&KeyClass> {
    claim.life.age().map(|age| &age.class)
}

/// What the columns hold. A session that is not strict would cut it off in silence.
const LONGEST_CLASS: usize = 255;
