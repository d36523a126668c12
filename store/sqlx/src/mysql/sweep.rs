//! Forgetting what is over.

use std::collections::BTreeMap;

use idempotency::protocol::{self, SweepStep};
use idempotency::{KeyClass, Record, RecordId, StoreError, Swept, Timestamp};

use super::db::{Db, Tries, Writing};
use super::error::Failure;
use super::{sql, steps};
use crate::{row, step_row};

/// Sweeps in transactions short enough for nobody to wait for long. Any number of sweepers share the work.
pub(super) async fn sweep(db: &Db, limit: usize) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let mut left = limit;
    while left > 0 {
        let batch = left.min(BATCH);
        let done = sweep_batch_patiently(db, batch).await?;
        swept = swept.and(Swept { more: false, ..done });
        left -= batch;
        if !done.more {
            return Ok(swept);
        }
    }
    Ok(Swept { more: limit > 0, ..swept })
}

async fn sweep_batch_patiently(db: &Db, batch: usize) -> Result<Swept, StoreError> {
    let mut tries = Tries::new();
    loop {
        let swept = sweep_batch(db, batch).await;
        if let Some(swept) = tries.judge(swept).await? {
            return Ok(swept);
        }
    }
}

async fn sweep_batch(db: &Db, batch: usize) -> Result<Swept, Failure> {
    let mut writing = db.begin().await?;
    // Before the rows and not with them: a time in a table, that the rows' index is to be searched by. Nothing waits in between,
    // and what was written since is judged as if it were later.
    let rows = writing.fetch_all(db.timed(sql::CLOCK)).await?;
    let now = row::now(rows.first().ok_or_else(Failure::changed)?)?;
    let limit = i64::try_from(batch).unwrap_or(i64::MAX);
    let due = sqlx::query(sql::DUE_RECORDS).bind(row::FORMAT).bind(now.micros()).bind(limit);
    let rows = writing.fetch_all(due).await?;
    if rows.is_empty() {
        writing.rollback().await?;
        return Ok(Swept::default());
    }
    let mut swept = Swept { more: rows.len() == batch, ..Swept::default() };
    let mut floors = BTreeMap::new();
    for row in &rows {
        let id = row::id(row)?;
        match row::record(row) {
            Ok(record) => match step_row::kept_for_steps(row, &record, now)? {
                Some(due) => postpone(&mut writing, &id, due).await?,
                None => {
                    let purged = swept.purged;
                    sweep_record(&mut writing, &id, record, now, &mut swept, &mut floors).await?;
                    if swept.purged > purged && step_row::has_calls(row)? {
                        steps::forget(&mut writing, &id).await?;
                    }
                }
            },
            Err(unreadable) => {
                tracing::warn!(%id, %unreadable, "an unreadable row is kept for ever");
                postpone(&mut writing, &id, Timestamp::MAX).await?;
            }
        }
    }
    // In order, so that two sweepers do not wait for each other's classes.
    for (class, floor) in &floors {
        writing.raise_floor(class, *floor).await?;
    }
    // Last: every sweeper writes this row, and the next one waits from here to the commit only.
    if swept.purged + swept.tombstoned > 0 {
        writing.execute(sqlx::query(sql::KEEP_CLOCK).bind(now.micros())).await?;
    }
    writing.commit().await?;
    Ok(swept)
}

/// Does with a record, whose row is locked, what is to be done.
async fn sweep_record(
    writing: &mut Writing,
    id: &RecordId,
    record: Record,
    now: Timestamp,
    swept: &mut Swept,
    floors: &mut BTreeMap<KeyClass, Timestamp>,
) -> Result<(), Failure> {
    match protocol::sweep(&record, now) {
        SweepStep::Keep => postpone(writing, id, record.due()).await?,
        SweepStep::DropPayload => {
            let due = row::without_payload(record).due().micros();
            let statement = sqlx::query(sql::DROP_PAYLOAD).bind(due).bind(id.as_bytes().to_vec()).bind(now.micros());
            swept.tombstoned += usize::from(writing.execute(statement).await? > 0);
        }
        SweepStep::Purge { was_in_doubt } => {
            if let Some((class, key_time)) = record.floor() {
                let floor = floors.entry(class.clone()).or_insert(key_time);
                *floor = key_time.max(*floor);
            }
            let statement = sqlx::query(sql::DELETE_RECORD)
                .bind(id.as_bytes().to_vec())
                .bind(row::state_name(&record.stored))
                .bind(record.token.map(row::token_number))
                .bind(now.micros());
            if writing.execute(statement).await? > 0 {
                swept.purged += 1;
                swept.escapes += usize::from(was_in_doubt);
            }
        }
    }
    Ok(())
}

async fn postpone(writing: &mut Writing, id: &RecordId, due: Timestamp) -> Result<(), Failure> {
    let statement = sqlx::query(sql::POSTPONE_RECORD).bind(due.micros()).bind(id.as_bytes().to_vec());
    writing.execute(statement).await.map(drop)
}

/// Rows in one transaction, each of them a statement.
const BATCH: usize = 100;
