//! The operations on one record.

use std::sync::Arc;

use idempotency::protocol::{self, Decision};
use idempotency::time::micros;
use idempotency::{
    Claim, Claimed, Grant, Holder, KeyClass, Lease, Outcome, Record, RecordId, Settled, StoreError, StoreErrorKind,
    TOKEN_HOLD, Timestamp,
};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::db::{Db, Query, Tries, Writing};
use super::error::Failure;
use super::{sql, steps};
use crate::prolonging;
use crate::row::{self, Judged};

row::codec!(PgRow, Query);

/// Claims in one trip when nobody has the key. Otherwise the record answers from a plain read, which nobody's lock
/// blocks; only a grant over it takes its row.
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
    let judged = if db.may_stand_alone(try_) && claim.life.age().is_none() {
        if let Some(grant) = granted(&db.alone(try_, claim_absent(db, claim)).await?, claim)? {
            return Ok(grant);
        }
        row::judged(&db.alone(try_, read(db, &claim.id, class(claim))).await?)?
    } else {
        let mut writing = db.begin().await?;
        let grant = granted(&writing.fetch_all(claim_absent(db, claim)).await?, claim)?;
        if claim.life.age().is_none()
            && let Some(grant) = grant
        {
            writing.commit().await?;
            return Ok(grant);
        }
        let judged = row::judged(&writing.fetch_all(read(db, &claim.id, class(claim))).await?)?;
        // The first statement may have waited for a purge of this very key, whose floor is newer than what it saw. Now that
        // the row is ours, no other purge of the key is under way, and the second one sees what the last one left.
        let too_old = claim.life.age().is_some() && claim.key_time.is_some_and(|time| judged.is_below_floor(time));
        match grant {
            Some(_) if too_old => {
                writing.rollback().await?;
                return Ok(Claimed::TooOld);
            }
            Some(grant) => {
                writing.commit().await?;
                return Ok(grant);
            }
            None => writing.rollback().await?,
        }
        judged
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

/// The statement that claims a key which has no record, if its age allows it.
fn claim_absent(db: &Db, claim: &Claim) -> Query {
    let statement = db
        .timed(sql::CLAIM)
        .bind(claim.id.as_bytes().as_slice())
        .bind(row::FORMAT)
        .bind(claim.fingerprint.to_bytes().as_slice())
        .bind(claim.nonce.as_bytes().as_slice())
        .bind(micros(claim.lease.length()));
    row::write_life(statement, Some(&claim.life)).bind(claim.key_time.map(Timestamp::micros)).bind(micros(TOKEN_HOLD))
}

/// What [`sql::CLAIM`] came to.
fn granted(rows: &[PgRow], claim: &Claim) -> Result<Option<Claimed>, Failure> {
    let Some(row) = rows.first() else { return Ok(None) };
    let token = row::token(row.try_get("token")?);
    let token =
        token.ok_or_else(|| StoreError::new(StoreErrorKind::Refused, "the server's clock is beyond all tokens"))?;
    Ok(Some(Claimed::Granted(Grant {
        token,
        attempt: 1,
        lease_left: claim.lease.length(),
        recovery: claim.life.recovery(),
        possible_escape: false,
    })))
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
pub(super) async fn complete(db: &Db, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
    if change_held(db, || completion(db, holder, outcome, Within::Anything)).await? {
        return Ok(Settled::Applied);
    }
    settle(db, &holder.id, |record, now| protocol::complete(record, holder, outcome, now)).await
}

/// The statement that completes what its holder still holds.
pub(super) fn completion(db: &Db, holder: &Holder, outcome: &Outcome, within: Within) -> Query {
    held(db, sql::COMPLETE, holder)
        .bind(i64::from(outcome.status()))
        .bind(outcome.location())
        .bind(outcome.payload().map(|payload| payload.as_ref()))
        .bind(within == Within::BegunTransaction)
}

/// Where a completion is carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    Anything,
    /// The transaction that was begun for the effect, and no other.
    BegunTransaction,
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
