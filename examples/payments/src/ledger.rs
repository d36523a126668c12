//! Accounts and payments in SQLite: the effect that is to happen once.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode};
use tokio::time::sleep;

/// Who has how much, and who paid whom.
#[derive(Clone)]
pub(crate) struct Ledger {
    pool: SqlitePool,
    think: Duration,
}

/// What is asked for.
#[derive(Deserialize)]
pub(crate) struct Order {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

/// What was done.
#[derive(Serialize)]
pub(crate) struct Payment {
    pub(crate) id: i64,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

/// An account, and how many payments were made from it.
#[derive(Serialize)]
pub(crate) struct Account {
    pub(crate) id: String,
    pub(crate) balance: i64,
    pub(crate) payments: i64,
}

/// Why there is no payment. The two kinds of database errors are worth telling apart: after the one a retry is safe,
/// after the other nobody knows.
pub(crate) enum NotPaid {
    UnknownAccount(String),
    InsufficientFunds,
    /// The transaction was not committed: for certain nothing happened.
    NothingDone(sqlx::Error),
    /// The commit itself failed: it may have happened.
    Unknown(sqlx::Error),
}

impl Ledger {
    /// Opens the database, and makes it and its accounts when they are not there. A payment takes `think` at least.
    pub(crate) async fn open(path: &Path, think: Duration) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(5));
        let pool = SqlitePool::connect_with(options).await?;
        sqlx::raw_sql(include_str!("schema.sql")).execute(&pool).await?;
        Ok(Self { pool, think })
    }

    /// Moves the money in one transaction.
    pub(crate) async fn pay(&self, order: Order) -> Result<Payment, NotPaid> {
        sleep(self.think).await;
        // IMMEDIATE takes the write lock at once, or the transaction could find out half-way that it comes too late.
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(NotPaid::NothingDone)?;
        let id = transfer(&mut transaction, &order).await?;
        transaction.commit().await.map_err(NotPaid::Unknown)?;
        Ok(Payment { id, from: order.from, to: order.to, amount: order.amount })
    }

    pub(crate) async fn payment(&self, id: i64) -> Result<Option<Payment>, sqlx::Error> {
        let row: Option<(String, String, i64)> =
            sqlx::query_as("SELECT payer, payee, amount FROM payment WHERE id = ?1")
                .bind(id)
                .fetch_optional(&self.pool)
                .await?;
        Ok(row.map(|(from, to, amount)| Payment { id, from, to, amount }))
    }

    pub(crate) async fn account(&self, id: String) -> Result<Option<Account>, sqlx::Error> {
        let row: Option<(i64, i64)> = sqlx::query_as(
            "SELECT balance, (SELECT count(*) FROM payment WHERE payer = account.id) FROM account WHERE id = ?1",
        )
        .bind(&id)
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|(balance, payments)| Account { id, balance, payments }))
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Everything before the commit. Dropped or failed, the transaction rolls back.
async fn transfer(connection: &mut SqliteConnection, order: &Order) -> Result<i64, NotPaid> {
    // The condition is in the UPDATE: no balance is read first that somebody else could change meanwhile.
    let taken = sqlx::query("UPDATE account SET balance = balance - ?1 WHERE id = ?2 AND balance >= ?1")
        .bind(order.amount)
        .bind(&order.from)
        .execute(&mut *connection)
        .await?;
    if taken.rows_affected() == 0 {
        let known: Option<(i64,)> =
            sqlx::query_as("SELECT 1 FROM account WHERE id = ?1").bind(&order.from).fetch_optional(connection).await?;
        return Err(known.map_or_else(|| NotPaid::UnknownAccount(order.from.clone()), |_| NotPaid::InsufficientFunds));
    }
    let given = sqlx::query("UPDATE account SET balance = balance + ?1 WHERE id = ?2")
        .bind(order.amount)
        .bind(&order.to)
        .execute(&mut *connection)
        .await?;
    if given.rows_affected() == 0 {
        return Err(NotPaid::UnknownAccount(order.to.clone()));
    }
    let (id,): (i64,) = sqlx::query_as("INSERT INTO payment (payer, payee, amount) VALUES (?1, ?2, ?3) RETURNING id")
        .bind(&order.from)
        .bind(&order.to)
        .bind(order.amount)
        .fetch_one(connection)
        .await?;
    Ok(id)
}

/// Of a statement inside the transaction; the commit says for itself what its failure means.
impl From<sqlx::Error> for NotPaid {
    fn from(error: sqlx::Error) -> Self {
        Self::NothingDone(error)
    }
}
