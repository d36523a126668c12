//! What operators see.

use idempotency::{Entry, List, Page, RecordId, StoreError};
use sqlx::sqlite::SqliteRow;

use super::db::{Db, cached};
use super::{row, sql};

pub(super) async fn inspect(db: &Db, id: &RecordId) -> Result<Option<Entry>, StoreError> {
    let inspect = || cached(sql::INSPECT_RECORD).bind(id.as_bytes().as_slice()).bind(db.given_now());
    let rows = db.read(inspect).await?;
    rows.first().map_or(Ok(None), row::entry)
}

/// Fills a page in batches: a state is judged by the clock, so it cannot be looked up.
pub(super) async fn list(db: &Db, list: &List) -> Result<Page, StoreError> {
    let mut page = Page::default();
    let mut after = list.after;
    let mut seen = 0;
    while page.entries.len() < list.limit {
        // One more than fits, to know whether there is one.
        let batch = (list.limit - page.entries.len()).saturating_add(1).clamp(LEAST_BATCH, MOST_BATCH);
        let rows = rows_after(db, after, batch).await?;
        for (index, row) in rows.iter().enumerate() {
            let id = row::id(row)?;
            after = Some(id);
            let entry = row::entry(row)?;
            page.entries.extend(entry.filter(|entry| list.state.is_none_or(|state| state == entry.state)));
            if page.entries.len() == list.limit {
                page.next = after.filter(|_| index + 1 < rows.len() || rows.len() == batch);
                return Ok(page);
            }
        }
        seen += rows.len();
        if rows.len() < batch {
            break;
        }
        if seen >= MOST_SEEN {
            page.next = after;
            break;
        }
    }
    Ok(page)
}

async fn rows_after(db: &Db, after: Option<RecordId>, limit: usize) -> Result<Vec<SqliteRow>, StoreError> {
    let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    db.read(|| cached(sql::LIST_RECORDS).bind(after.as_slice()).bind(db.given_now()).bind(limit)).await
}

const LEAST_BATCH: usize = 64;
const MOST_BATCH: usize = 500;

/// After so many rows a page is handed out, full or not, so that one call stays short however rare the state.
const MOST_SEEN: usize = 10_000;
