//! What a lease protects.

use idempotency::{FenceTicket, HeldLease, Leases};
use idempotency_sqlx::SqliteStore;
use idempotency_sqlx::fence::{FenceError, Fences, SqliteFences};
use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tempfile::TempDir;

use super::account;

/// Accounts in a database that is not lost, behind a fence.
pub(crate) struct Accounts {
    fences: SqliteFences,
    pool: SqlitePool,
    _folder: TempDir,
}

impl Accounts {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("accounts.sqlite");
        SqliteStore::options(&format!("sqlite:{}", file.display())).migrate().await.unwrap();
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(file)).await.unwrap();
        sqlx::raw_sql("CREATE TABLE account (writer TEXT NOT NULL); INSERT INTO account VALUES ('nobody');")
            .execute(&pool)
            .await
            .unwrap();
        Self { fences: SqliteFences::new(pool.clone()), pool, _folder: folder }
    }

    /// Writes with a token, as a holder does who does not know whether it still is one.
    pub(crate) async fn write(&self, ticket: &FenceTicket, writer: &str) -> Result<(), FenceError> {
        let mut opened = self.fences.open_with(&account(), ticket).await?;
        sqlx::query("UPDATE account SET writer = ?").bind(writer.to_owned()).execute(&mut *opened).await.unwrap();
        opened.commit().await.map(|_| ())
    }

    /// Writes as a holder whose lease store may have lost its memory.
    pub(crate) async fn write_healing<L: Leases>(&self, lease: &HeldLease<L>, writer: &str) -> Result<(), FenceError> {
        let mut opened = self.fences.open_healing(&account(), lease).await?;
        sqlx::query("UPDATE account SET writer = ?").bind(writer.to_owned()).execute(&mut *opened).await.unwrap();
        opened.commit().await.map(|_| ())
    }

    pub(crate) async fn writer(&self) -> String {
        sqlx::query_scalar("SELECT writer FROM account").fetch_one(&self.pool).await.unwrap()
    }

    /// The older of two holders comes late: refused, and nothing of it is there.
    pub(crate) async fn refuse(&self, older: &FenceTicket) {
        let before = self.writer().await;
        let answer = self.write(older, "the older one").await;
        assert!(matches!(answer, Err(FenceError::Superseded { .. })), "{answer:?}");
        assert_eq!(self.writer().await, before);
    }
}
