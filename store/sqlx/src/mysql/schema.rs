//! The tables: what they are, and whether they are there.

use idempotency::{OpenError, StoreError, StoreErrorKind};
use sqlx::mysql::MySqlPool;
use sqlx::{Executor, MySqlConnection, Row};
use tokio::time::timeout;

use super::error::{is_no_such_table, store_error};
use super::sql;
use crate::in_time::{ANSWER, MIGRATION, in_time};

macro_rules! first {
    () => {
        include_str!("../../migrations/mysql/0000_migrations.sql")
    };
}
macro_rules! records {
    () => {
        include_str!("../../migrations/mysql/0001_records.sql")
    };
}
macro_rules! leases_and_fences {
    () => {
        include_str!("../../migrations/mysql/0002_leases_and_fences.sql")
    };
}

macro_rules! steps {
    () => {
        include_str!("../../migrations/mysql/0003_steps.sql")
    };
}

/// The version that this release reads and writes.
pub(super) const NEEDED: u32 = 3;

/// Everything that [`migrate`] does to an empty database.
pub(super) const SCHEMA: &str = concat!(first!(), "\n", records!(), "\n", leases_and_fences!(), "\n", steps!());

/// Each brings the tables from the version before it to its own, which it records itself when all of it is done.
const MIGRATIONS: [(u32, &str); 3] = [(1, records!()), (2, leases_and_fences!()), (3, steps!())];

/// Sees that the tables are ours, and that what stands alone is committed.
pub(super) async fn check(pool: &MySqlPool) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await.map_err(broken)?;
    let answered = async {
        let row = connection.fetch_one(sqlx::query(sql::AUTOCOMMIT).persistent(false)).await.map_err(broken)?;
        if row.try_get::<i64, _>("autocommit").map_err(broken)? != 1 {
            let error = StoreError::new(StoreErrorKind::Refused, "the sessions of the pool have `autocommit` off");
            return Err(OpenError::Store(error));
        }
        version(&mut connection).await
    };
    let answered = timeout(ANSWER, answered).await;
    let found = in_time(answered, &mut connection)?;
    if found < NEEDED {
        return Err(OpenError::Schema { found, needed: NEEDED });
    }
    Ok(())
}

/// Brings the tables to [`NEEDED`], unless they are there.
pub(super) async fn migrate(pool: &MySqlPool) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await.map_err(broken)?;
    let found = in_time(timeout(ANSWER, version(&mut connection)).await, &mut connection)?;
    if found == NEEDED {
        return Ok(());
    }
    in_time(timeout(MIGRATION, migrate_on(&mut connection, found)).await, &mut connection)
}

/// A table definition commits at once, so there is no transaction around it all: each migration can be carried out again, or by two processes
/// at once, and its version is there when the rest is.
async fn migrate_on(connection: &mut MySqlConnection, found: u32) -> Result<(), OpenError> {
    connection.execute(sqlx::raw_sql(first!())).await.map_err(broken)?;
    for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
        connection.execute(sqlx::raw_sql(*migration)).await.map_err(broken)?;
    }
    Ok(())
}

/// The version of the tables, 0 when there are none.
async fn version(connection: &mut MySqlConnection) -> Result<u32, OpenError> {
    let found = match connection.fetch_one(sqlx::query(sql::VERSION).persistent(false)).await {
        Ok(row) => row.try_get::<i64, _>("version").map_err(broken)?,
        Err(error) if is_no_such_table(&error) => 0,
        Err(error) => return Err(broken(error)),
    };
    match u32::try_from(found) {
        Ok(found) if found <= NEEDED => Ok(found),
        found => Err(OpenError::SchemaTooNew { found: found.unwrap_or(u32::MAX), needed: NEEDED }),
    }
}

fn broken(error: sqlx::Error) -> OpenError {
    OpenError::Store(store_error(error))
}
