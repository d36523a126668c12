//! Forgetting what is over.

use std::collections::BTreeMap;

use idempotency::protocol::{self, SweepStep};
use idempotency::{KeyClass, Record, RecordId, StoreError, Swept, Timestamp};
use sqlx::sqlite::SqliteRow;

use super::db::{Db, End, Query, Writing, cached};
use super::{row, sql, steps};
use crate::step_row;

/// Sweeps in transactions short enough for claims to get in between.
pub(super) async fn sweep(db: &Db, limit: usize) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let mut left = limit;
    let mut forgot = false;
    loop {
        let batch = left.min(BATCH);
        // Nothing to do is most often the answer, and it takes no write lock.
        if batch == 0 || db.read(|| due(sql::READ_DUE, db.given_now(), 1)).await?.is_empty() {
            swept.more = batch == 0 && limit > 0;
            break;
        }
        let begin = |given_now| due(sql::BEGIN_AND_READ_DUE, given_now, batch);
        let (mut writing, rows) = db.begin(begin).await?;
        let end = sweep_batch(&mut writing, &rows, batch).await;
        let done = writing.finish(end).await?;
        swept = swept.and(Swept { more: false, ..done });
        forgot |= done.tombstoned + done.purged > 0;
        left -= batch;
        if !done.more {
            break;
        }
    }
    if forgot && !swept.more {
        truncate_log(db).await;
    }
    Ok(swept)
}

async fn sweep_batch(writing: &mut Writing<'_>, rows: &[SqliteRow], batch: usize) -> Result<End<Swept>, StoreError> {
    let Some(first) = rows.first() else { return Ok(End::Rollback(Swept::default())) };
    let now = row::now(first)?;
    let mut swept = Swept { more: rows.len() == batch, ..Swept::default() };
    let mut floors = BTreeMap::new();
    for row in rows {
        let id = row::id(row)?;
        match row::record(row) {
            Ok(record) => match step_row::kept_for_steps(row, &record, now)? {
                Some(due) => postpone(writing, &id, due).await?,
                None => {
                    let purged = swept.purged;
                    sweep_record(writing, &id, record, now, &mut swept, &mut floors).await?;
                    if swept.purged > purged && step_row::has_calls(row)? {
                        steps::forget(writing, &id).await?;
                    }
                }
            },
            Err(unreadable) => {
                tracing::warn!(%id, %unreadable, "an unreadable row is kept for ever");
                postpone(writing, &id, Timestamp::MAX).await?;
            }
        }
    }
    for (class, floor) in &floors {
        writing.raise_floor(class, *floor).await?;
    }
    if swept.purged + swept.tombstoned > 0 {
        writing.execute(cached(sql::KEEP_CLOCK).bind(now.micros())).await?;
    }
    Ok(End::Commit(cached(sql::COMMIT), swept))
}

async fn sweep_record(
    writing: &mut Writing<'_>,
    id: &RecordId,
    record: Record,
    now: Timestamp,
    swept: &mut Swept,
    floors: &mut BTreeMap<KeyClass, Timestamp>,
) -> Result<(), StoreError> {
    match protocol::sweep(&record, now) {
        SweepStep::Keep => postpone(writing, id, record.due()).await,
        SweepStep::DropPayload => {
            swept.tombstoned += 1;
            let due = row::without_payload(record).due();
            writing.execute(cached(sql::DROP_PAYLOAD).bind(blob(id)).bind(due.micros())).await
        }
        SweepStep::Purge { was_in_doubt } => {
            swept.purged += 1;
            swept.escapes += usize::from(was_in_doubt);
            if let Some((class, key_time)) = record.floor() {
                let floor = floors.entry(class.clone()).or_insert(key_time);
                *floor = key_time.max(*floor);
            }
            writing.execute(cached(sql::DELETE_RECORD).bind(blob(id)).bind(now.micros())).await
        }
    }
}

/// The statement that reads the rows that are due, without their payloads.
fn due(statement: &'static str, given_now: Option<i64>, limit: usize) -> Query {
    cached(statement).bind(row::FORMAT).bind(given_now).bind(i64::try_from(limit).unwrap_or(i64::MAX))
}

async fn postpone(writing: &mut Writing<'_>, id: &RecordId, due: Timestamp) -> Result<(), StoreError> {
    writing.execute(cached(sql::POSTPONE_RECORD).bind(blob(id)).bind(due.micros())).await
}

fn blob(id: &RecordId) -> &[u8] {
    id.as_bytes()
}

/// Empties the log, where the bytes that are gone from the database still lie. Only when nobody else is busy: the
/// sweep is done, and a later one or the log's next round does this as well.
async fn truncate_log(db: &Db) {
    if let Err(error) = db.outside_transaction(cached(sql::TRUNCATE_LOG)).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "could not empty the write-ahead log");
    }
}

/// Rows in one transaction. Each may free a payload of 256 KiB, which is then zeroed.
const BATCH: usize = 64;
