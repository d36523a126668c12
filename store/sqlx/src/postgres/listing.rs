//! What operators see.

use idempotency::{Entry, RecordId, StoreError};
use sqlx::postgres::PgRow;

use super::db::{Db, Query, Tries};
use super::sql;
use crate::listing::Listed;
use crate::row;

pub(super) async fn inspect(db: &Db, id: &RecordId) -> Result<Option<Entry>, StoreError> {
    let rows = read(db, || db.timed(sql::INSPECT_RECORD).bind(id.as_bytes().as_slice())).await?;
    rows.first().map_or(Ok(None), row::entry)
}

impl Listed for Db {
    type Row = PgRow;

    async fn rows_after(&self, after: Option<RecordId>, limit: usize) -> Result<Vec<PgRow>, StoreError> {
        let after = after.map_or(Vec::new(), |id| id.as_bytes().to_vec());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        read(self, || self.timed(sql::LIST_RECORDS).bind(after.as_slice()).bind(limit)).await
    }
}

pub(super) async fn read(db: &Db, statement: impl Fn() -> Query) -> Result<Vec<PgRow>, StoreError> {
    let mut tries = Tries::default();
    loop {
        let rows = db.alone(tries.number(), statement()).await;
        if let Some(rows) = tries.judge(rows).await? {
            return Ok(rows);
        }
    }
}
