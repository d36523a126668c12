//! What operators see.

use idempotency::{Entry, RecordId, StoreError};
use sqlx::sqlite::SqliteRow;

use super::db::{Db, cached};
use super::{row, sql};
use crate::listing::Listed;

pub(super) async fn inspect(db: &Db, id: &RecordId) -> Result<Option<Entry>, StoreError> {
    let inspect = || cached(sql::INSPECT_RECORD).bind(id.as_bytes().as_slice()).bind(db.given_now());
    let rows = db.read(inspect).await?;
    rows.first().map_or(Ok(None), row::entry)
}

impl Listed for Db {
    type Row = SqliteRow;

    async fn rows_after(&self, after: Option<RecordId>, limit: usize) -> Result<Vec<SqliteRow>, StoreError> {
        let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(|| cached(sql::LIST_RECORDS).bind(after.as_slice()).bind(self.given_now()).bind(limit)).await
    }
}
