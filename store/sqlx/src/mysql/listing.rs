//! What operators see.

use idempotency::{Entry, RecordId, StoreError};
use sqlx::mysql::MySqlRow;

use super::db::Db;
use super::error::Failure;
use super::sql;
use crate::listing::Listed;
use crate::row;

pub(super) async fn inspect(db: &Db, id: &RecordId) -> Result<Option<Entry>, StoreError> {
    let rows = db.read(db.timed(sql::INSPECT_RECORD).bind(id.as_bytes().as_slice())).await;
    rows.map_err(Failure::into_store_error)?.first().map_or(Ok(None), row::entry)
}

impl Listed for Db {
    type Row = MySqlRow;

    async fn rows_after(&self, after: Option<RecordId>, limit: usize) -> Result<Vec<MySqlRow>, StoreError> {
        let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.read(self.timed(sql::LIST_RECORDS).bind(after).bind(limit)).await;
        rows.map_err(Failure::into_store_error)
    }
}
