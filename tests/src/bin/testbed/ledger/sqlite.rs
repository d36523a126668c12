//! A ledger in a SQLite file.

use std::str::FromStr;
use std::time::Duration;

use idempotency_sqlx::SqliteStore;
use idempotency_sqlx::fence::SqliteFences;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, FromRow, Row as _};
use tokio::time::{Instant, sleep};

use super::{Counter, Effect, Effects, Row};
use crate::error::StartError;

/// One writer, because SQLite has one anyway and queues nobody; readers are not held up by it.
#[derive(Clone, Debug)]
pub(crate) struct Sqlite {
    pub(super) writer: SqlitePool,
    pub(super) readers: SqlitePool,
    pub(crate) fences: SqliteFences,
}

impl Sqlite {
    pub(super) async fn open(url: &str) -> Result<Self, StartError> {
        let options = SqliteConnectOptions::from_str(url).map_err(StartError::Ledger)?;
        if options.get_filename().as_os_str().is_empty() || url.contains(":memory:") {
            return Err(StartError::usage("--ledger", "a ledger needs a file; write sqlite:PATH"));
        }
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // A killed process loses nothing by this.
            .synchronous(SqliteSynchronous::Normal)
            // Another testbed may be stopped while it writes.
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        let pool = |most| SqlitePoolOptions::new().max_connections(most).test_before_acquire(false);
        SqliteStore::options(url).busy_timeout(PATIENCE).migrate().await.map_err(StartError::Fences)?;
        let writer = pool(1).connect_lazy_with(options.clone());
        create(&writer).await.map_err(StartError::Ledger)?;
        let fences = SqliteFences::new(writer.clone());
        Ok(Self { writer, readers: pool(2).connect_lazy_with(options), fences })
    }
}

impl Effects for SqliteConnection {
    async fn insert(&mut self, effect: &Effect) -> Result<i64, sqlx::Error> {
        let insert = sqlx::query(include_str!("../../../../sql/sqlite/insert_effect.sql"))
            .bind(&effect.key)
            .bind(&effect.route)
            .bind(&effect.resource)
            .bind(effect.amount)
            .bind(effect.token.map(u64::cast_signed))
            .bind(effect.attempt)
            .bind(std::process::id())
            .bind(effect.value);
        Ok(insert.execute(self).await?.last_insert_rowid())
    }

    async fn effects(&mut self, key: Option<&str>, route: Option<&str>) -> Result<Vec<Row>, sqlx::Error> {
        let select = match key {
            Some(key) => sqlx::query_as(include_str!("../../../../sql/sqlite/effects_of_key.sql")).bind(key),
            None => sqlx::query_as(include_str!("../../../../sql/sqlite/all_effects.sql")),
        };
        select.bind(route).fetch_all(self).await
    }

    async fn counter(&mut self, resource: &str) -> Result<Counter, sqlx::Error> {
        let select = sqlx::query_as(include_str!("../../../../sql/sqlite/read_counter.sql")).bind(resource);
        Ok(select.fetch_optional(self).await?.unwrap_or_default())
    }

    async fn set_counter(&mut self, resource: &str, counter: Counter) -> Result<(), sqlx::Error> {
        let write = sqlx::query(include_str!("../../../../sql/sqlite/write_counter.sql"));
        write.bind(resource).bind(counter.value).bind(counter.token).execute(self).await.map(drop)
    }
}

impl FromRow<'_, SqliteRow> for Row {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            seq: row.try_get("seq")?,
            key: row.try_get("key")?,
            route: row.try_get("route")?,
            resource: row.try_get("resource")?,
            amount: row.try_get("amount")?,
            token: row.try_get("token")?,
            attempt: row.try_get("attempt")?,
            process: row.try_get("process")?,
            value: row.try_get("value")?,
            at: row.try_get("at")?,
        })
    }
}

impl FromRow<'_, SqliteRow> for Counter {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self { value: row.try_get("value")?, token: row.try_get("token")? })
    }
}

/// Creates the tables. Two testbeds may begin at once, and while the journal mode changes SQLite does not wait for its
/// lock, so this does.
async fn create(writer: &SqlitePool) -> Result<(), sqlx::Error> {
    let give_up = Instant::now() + Duration::from_secs(5);
    loop {
        match sqlx::raw_sql(include_str!("../../../../sql/sqlite/create_effects.sql")).execute(writer).await {
            Err(error) if is_busy(&error) && Instant::now() < give_up => sleep(Duration::from_millis(20)).await,
            result => return result.map(drop),
        }
    }
}

/// Somebody else has the file's lock. Extended codes have the primary one in their last byte.
fn is_busy(error: &sqlx::Error) -> bool {
    const BUSY: i32 = 5;
    let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xFF == BUSY)
}

/// How long a writer waits for another testbed.
const PATIENCE: Duration = Duration::from_secs(30);
