//! What operators see, a page at a time.

use idempotency::{List, Page, RecordId, StoreError};

use crate::row::{self, Columns};

/// A database whose records can be listed.
pub(crate) trait Listed {
    type Row: Columns;

    /// The rows after an id, at most so many.
    fn rows_after(
        &self,
        after: Option<RecordId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;
}

/// Fills a page in batches: a state is judged by the clock, so it cannot be looked up.
pub(crate) async fn list(db: &impl Listed, list: &List) -> Result<Page, StoreError> {
    let mut page = Page::default();
    let mut after = list.after;
    let mut seen = 0;
    while page.entries.len() < list.limit {
        // One more than fits, to know whether there is one.
        let batch = (list.limit - page.entries.len()).saturating_add(1).clamp(LEAST_BATCH, MOST_BATCH);
        let rows = db.rows_after(after, batch).await?;
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

const LEAST_BATCH: usize = 64;
const MOST_BATCH: usize = 500;

/// After so many rows a page is handed out, full or not, so that one call stays short however rare the state.
const MOST_SEEN: usize = 10_000;
