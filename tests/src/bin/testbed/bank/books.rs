//! The bank's own books, in a SQLite file: what it did, and what it was asked.

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, FromRow, Row as _};
use tempfile::TempDir;

use super::fault::Fault;
use crate::error::StartError;

#[derive(Clone, Debug)]
pub(super) struct Books(SqlitePool);

/// A transfer as it stands in the books.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Transfer {
    #[serde(rename = "transfer")]
    pub(super) id: i64,
    pub(super) reference: String,
    pub(super) amount: i64,
    pub(super) key: Option<String>,
    pub(super) at: i64,
}

/// A call as it stands in the books.
#[derive(Debug, serde::Serialize)]
pub(super) struct CallRow {
    seq: i64,
    reference: String,
    amount: i64,
    key: Option<String>,
    fault: Option<String>,
    at: i64,
}

/// What somebody asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) reference: String,
    pub(super) amount: i64,
    pub(super) key: Option<String>,
}

impl Books {
    /// Opens the books at `path`, or new ones in a temporary folder, which goes when it is dropped.
    pub(super) async fn open(path: Option<&str>) -> Result<(Self, Option<TempDir>), StartError> {
        let (path, folder) = match path {
            Some(path) => (path.into(), None),
            None => {
                let folder = tempfile::Builder::new().prefix("bank-").tempdir().map_err(StartError::TemporaryLedger)?;
                (folder.path().join("bank.sqlite"), Some(folder))
            }
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A killed process loses nothing by this.
            .synchronous(SqliteSynchronous::Normal)
            .disable_statement_logging();
        // One connection: every call is judged alone.
        let pool = SqlitePoolOptions::new().max_connections(1).test_before_acquire(false).connect_lazy_with(options);
        let create = sqlx::raw_sql(include_str!("../../../../sql/bank/create.sql")).execute(&pool).await;
        create.map_err(StartError::Ledger)?;
        Ok((Self(pool), folder))
    }

    /// Writes the call down with what it meets, which `meets` says from its number among those with its reference, and the
    /// transfer, if it leads to one at once or has done so before.
    pub(super) async fn call(
        &self,
        asked: &Asked,
        meets: impl FnOnce(u32) -> Fault,
    ) -> Result<(Fault, Option<Transfer>), sqlx::Error> {
        let mut books = self.0.begin().await?;
        let before: u32 = sqlx::query_scalar(include_str!("../../../../sql/bank/calls_before.sql"))
            .bind(&asked.reference)
            .fetch_one(&mut *books)
            .await?;
        let known = of_key(&mut books, asked).await?;
        let fault = match meets(before + 1) {
            // It is not refused what it was given.
            Fault::Refuse if known.is_some() => Fault::None,
            fault => fault,
        };
        let call = sqlx::query(include_str!("../../../../sql/bank/insert_call.sql"))
            .bind(&asked.reference)
            .bind(asked.amount)
            .bind(&asked.key)
            .bind(Some(fault.name()).filter(|_| fault != Fault::None));
        call.execute(&mut *books).await?;
        let transfer = match known {
            None if fault.commits() => Some(insert(&mut books, asked).await?),
            known => known,
        };
        books.commit().await?;
        Ok((fault, transfer))
    }

    /// Makes the transfer of a call that was written down before.
    pub(super) async fn transfer(&self, asked: &Asked) -> Result<Transfer, sqlx::Error> {
        let mut books = self.0.begin().await?;
        let transfer = match of_key(&mut books, asked).await? {
            Some(known) => known,
            None => insert(&mut books, asked).await?,
        };
        books.commit().await?;
        Ok(transfer)
    }

    /// The first transfer with this reference that is at least so old.
    pub(super) async fn settled(&self, reference: &str, millis: i64) -> Result<Option<Transfer>, sqlx::Error> {
        let select = sqlx::query_as(include_str!("../../../../sql/bank/settled_transfer.sql"));
        select.bind(reference).bind(millis).fetch_optional(&self.0).await
    }

    pub(super) async fn transfers(&self) -> Result<Vec<Transfer>, sqlx::Error> {
        sqlx::query_as(include_str!("../../../../sql/bank/all_transfers.sql")).fetch_all(&self.0).await
    }

    pub(super) async fn calls(&self) -> Result<Vec<CallRow>, sqlx::Error> {
        sqlx::query_as(include_str!("../../../../sql/bank/all_calls.sql")).fetch_all(&self.0).await
    }

    /// How many calls met which fault.
    pub(super) async fn faults(&self) -> Result<Vec<(String, i64)>, sqlx::Error> {
        sqlx::query_as(include_str!("../../../../sql/bank/count_faults.sql")).fetch_all(&self.0).await
    }
}

impl FromRow<'_, SqliteRow> for Transfer {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            reference: row.try_get("reference")?,
            amount: row.try_get("amount")?,
            key: row.try_get("key")?,
            at: row.try_get("at")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for CallRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            reference: row.try_get("reference")?,
            amount: row.try_get("amount")?,
            key: row.try_get("key")?,
            fault: row.try_get("fault")?,
            at: row.try_get("at")?,
        })
    }
}

/// The transfer that its key stands for.
async fn of_key(books: &mut SqliteConnection, asked: &Asked) -> Result<Option<Transfer>, sqlx::Error> {
    let Some(key) = &asked.key else { return Ok(None) };
    sqlx::query_as(include_str!("../../../../sql/bank/transfer_of_key.sql")).bind(key).fetch_optional(books).await
}

async fn insert(books: &mut SqliteConnection, asked: &Asked) -> Result<Transfer, sqlx::Error> {
    let insert = sqlx::query_as(include_str!("../../../../sql/bank/insert_transfer.sql"));
    insert.bind(&asked.reference).bind(asked.amount).bind(&asked.key).fetch_one(books).await
}
