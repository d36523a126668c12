//! The file that holds everything: what is to be kept right, and the locks that are to keep it so.

use std::path::{Path, PathBuf};

use idempotency::FencingToken;
use idempotency_sqlx::SqliteStore;
use idempotency_sqlx::fence::FencedTransaction;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Sqlite, SqlitePool};

use crate::Failure;
use crate::event::Who;

/// One act's file.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    pub(crate) pool: SqlitePool,
}

impl Database {
    /// Makes the file, with the tables of this program and those of the project's leases and fences.
    pub(crate) async fn create(path: &Path) -> Result<Self, Failure> {
        SqliteStore::migrate(&url(path)).await?;
        let database = Self::open(path).await?;
        sqlx::raw_sql(include_str!("schema.sql")).execute(&database.pool).await?;
        Ok(database)
    }

    /// Opens a file that is there.
    pub(crate) async fn open(path: &Path) -> Result<Self, Failure> {
        let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path)).await?;
        Ok(Self { path: path.into(), pool })
    }

    /// From now on, one invoice has one charge.
    pub(crate) async fn charge_once(&self) -> Result<(), Failure> {
        sqlx::query("CREATE UNIQUE INDEX charged_once ON entry (invoice)").execute(&self.pool).await?;
        Ok(())
    }

    /// The project's store in the same file, for its leases.
    pub(crate) async fn store(&self) -> Result<SqliteStore, Failure> {
        Ok(SqliteStore::open(&url(&self.path)).await?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What the data says.
    pub(crate) async fn facts(&self) -> Result<Facts, Failure> {
        let mut connection = self.pool.acquire().await?;
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT worker, amount FROM entry ORDER BY id").fetch_all(&mut *connection).await?;
        Ok(Facts { balance: balance(&mut connection).await?, entries: rows })
    }
}

/// What is left in the data when everybody is done.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) balance: i64,
    /// Who wrote, and by how much the balance was to change.
    pub(crate) entries: Vec<(String, i64)>,
}

impl Facts {
    /// What the balance should be by the entries.
    pub(crate) fn sum(&self) -> i64 {
        OPENING_BALANCE + self.entries.iter().map(|(_, amount)| amount).sum::<i64>()
    }
}

pub(crate) async fn balance(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT balance FROM account").fetch_one(connection).await
}

/// Writes a balance that was worked out from one that was read before. Such a write loses updates, so it asks for a
/// transaction that only the opening of a fence gives.
pub(crate) async fn write_balance(
    transaction: &mut FencedTransaction<Sqlite>,
    balance: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE account SET balance = ?1").bind(balance).execute(&mut **transaction).await?;
    Ok(())
}

/// The same with nothing but a token to protect it, as it is found in most articles. Where a token that is not older was
/// there before, that one is the answer, and nothing is written.
pub(crate) async fn write_balance_with_token(
    connection: &mut SqliteConnection,
    balance: i64,
    token: FencingToken,
) -> Result<Option<FencingToken>, Failure> {
    let update = sqlx::query("UPDATE account SET balance = ?1, fencing_token = ?2 WHERE fencing_token < ?2");
    let updated = update.bind(balance).bind(i64::try_from(token.get())?).execute(&mut *connection).await?;
    if updated.rows_affected() == 1 {
        return Ok(None);
    }
    let current: i64 = sqlx::query_scalar("SELECT fencing_token FROM account").fetch_one(connection).await?;
    Ok(Some(FencingToken::new(u64::try_from(current)?)?))
}

pub(crate) async fn enter_deposit(connection: &mut SqliteConnection, who: Who, amount: i64) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("INSERT INTO entry (worker, amount) VALUES (?1, ?2)");
    insert.bind(who.name()).bind(amount).execute(connection).await?;
    Ok(())
}

/// How often the invoice was charged.
pub(crate) async fn charges(connection: &mut SqliteConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM entry WHERE invoice = ?1").bind(INVOICE).fetch_one(connection).await
}

/// Charges the invoice, unless a UNIQUE row says that this was done. Whether it was charged now.
pub(crate) async fn charge(pool: &SqlitePool, who: Who) -> Result<bool, sqlx::Error> {
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
    let insert = sqlx::query("INSERT INTO entry (invoice, worker, amount) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING");
    let inserted = insert.bind(INVOICE).bind(who.name()).bind(-PRICE).execute(&mut *transaction).await?;
    if inserted.rows_affected() == 0 {
        return Ok(false); // rolled back
    }
    sqlx::query("UPDATE account SET balance = balance - ?1").bind(PRICE).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

/// As `schema.sql` has it.
pub(crate) const OPENING_BALANCE: i64 = 100;
pub(crate) const INVOICE: i64 = 42;
pub(crate) const PRICE: i64 = 30;
