//! Forgetting what is over.

use std::collections::BTreeMap;

use idempotency::protocol::{self, SweepStep};
use idempotency::{KeyClass, Record, RecordId, StoreError, Swept, Timestamp};
use sqlx::postgres::PgRow;

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
    let mut tries = Tries::default();
    loop {
        let swept = sweep_batch(db, batch).await;
        if let Some(swept) = tries.judge(swept).await? {
            return Ok(swept);
        }
    }
}

async fn sweep_batch(db: &Db, batch: usize) -> Result<Swept, Failure> {
    let mut writing = db.begin().await?;
    let limit = i64::try_from(batch).unwrap_or(i64::MAX);
    let rows = writing.fetch_all(db.timed(sql::DUE_RECORDS).bind(row::FORMAT).bind(limit)).await?;
    let Some(first) = rows.first() else {
        writing.rollback().await?;
        return Ok(Swept::default());
    };
    let now = row::now(first)?;
    let mut swept = Work::of(&rows, now)?.carry_out(&mut writing, now).await?;
    swept.more = rows.len() == batch;
    writing.commit().await?;
    Ok(swept)
}

/// What is to be done with the rows of a batch, all of them locked.
#[derive(Default)]
struct Work {
    postponed: Vec<(RecordId, Timestamp)>,
    dropped: Vec<(RecordId, Timestamp)>,
    purged: Vec<Purged>,
    /// In order, so that two sweepers do not wait for each other's classes.
    floors: BTreeMap<KeyClass, Timestamp>,
}

struct Purged {
    id: RecordId,
    state: &'static str,
    token: Option<i64>,
    was_in_doubt: bool,
    has_calls: bool,
}

impl Work {
    fn of(rows: &[PgRow], now: Timestamp) -> Result<Self, StoreError> {
        let mut work = Self::default();
        for row in rows {
            let id = row::id(row)?;
            match row::record(row) {
                Ok(record) => match step_row::kept_for_steps(row, &record, now)? {
                    Some(due) => work.postponed.push((id, due)),
                    None => work.add(id, record, now, step_row::has_calls(row)?),
                },
                Err(unreadable) => {
                    tracing::warn!(%id, %unreadable, "an unreadable row is kept for ever");
                    work.postponed.push((id, Timestamp::MAX));
                }
            }
        }
        Ok(work)
    }

    fn add(&mut self, id: RecordId, record: Record, now: Timestamp, has_calls: bool) {
        match protocol::sweep(&record, now) {
            SweepStep::Keep => self.postponed.push((id, record.due())),
            SweepStep::DropPayload => self.dropped.push((id, row::without_payload(record).due())),
            SweepStep::Purge { was_in_doubt } => {
                if let Some((class, key_time)) = record.floor() {
                    let floor = self.floors.entry(class.clone()).or_insert(key_time);
                    *floor = key_time.max(*floor);
                }
                let (state, token) = (row::state_name(&record.stored), record.token.map(row::token_number));
                self.purged.push(Purged { id, state, token, was_in_doubt, has_calls });
            }
        }
    }

    async fn carry_out(self, writing: &mut Writing<'_>, now: Timestamp) -> Result<Swept, Failure> {
        for (class, floor) in &self.floors {
            writing.raise_floor(class, *floor).await?;
        }
        if !self.postponed.is_empty() {
            let (ids, due) = columns(&self.postponed);
            writing.execute(writing.db.query(sql::POSTPONE_RECORDS).bind(ids).bind(due)).await?;
        }
        let mut swept = Swept::default();
        if !self.dropped.is_empty() {
            let (ids, due) = columns(&self.dropped);
            let statement = writing.db.query(sql::DROP_PAYLOADS).bind(ids).bind(due).bind(now.micros());
            swept.tombstoned = usize::try_from(writing.execute(statement).await?).unwrap_or(usize::MAX);
        }
        if !self.purged.is_empty() {
            let mut called = Vec::new();
            let statement = writing
                .db
                .query(sql::DELETE_RECORDS)
                .bind(self.purged.iter().map(|purged| purged.id.as_bytes().to_vec()).collect::<Vec<_>>())
                .bind(self.purged.iter().map(|purged| purged.state).collect::<Vec<_>>())
                .bind(self.purged.iter().map(|purged| purged.token).collect::<Vec<_>>())
                .bind(now.micros());
            for row in writing.fetch_all(statement).await? {
                let id = row::id(&row)?;
                let judged = self.purged.iter().find(|purged| purged.id == id);
                swept.purged += 1;
                swept.escapes += usize::from(judged.is_some_and(|judged| judged.was_in_doubt));
                called.extend(judged.filter(|judged| judged.has_calls).map(|_| id.as_bytes().to_vec()));
            }
            if !called.is_empty() {
                steps::forget(writing, called).await?;
            }
        }
        // Last: every sweeper writes this row, and the next one waits from here to the commit only.
        if swept.purged + swept.tombstoned > 0 {
            writing.execute(writing.db.query(sql::KEEP_CLOCK).bind(now.micros())).await?;
        }
        Ok(swept)
    }
}

fn columns(rows: &[(RecordId, Timestamp)]) -> (Vec<Vec<u8>>, Vec<i64>) {
    rows.iter().map(|(id, due)| (id.as_bytes().to_vec(), due.micros())).unzip()
}

/// Rows in one transaction.
const BATCH: usize = 200;
