//! The tables: what they are, and whether they are there.

use idempotency::OpenError;
use sqlx::postgres::PgPool;
use sqlx::{Connection, Executor, PgConnection, Postgres, Row, Transaction};
use tokio::time::timeout;

use super::error::store_error;
use super::sql;
use crate::in_time::{ANSWER, MIGRATION, in_time};

macro_rules! first {
    () => {
        include_str!("../../migrations/postgres/0000_migrations.sql")
    };
}
macro_rules! records {
    () => {
        include_str!("../../migrations/postgres/0001_records.sql")
    };
}
macro_rules! leases_and_fences {
    () => {
        include_str!("../../migrations/postgres/0002_leases_and_fences.sql")
    };
}

macro_rules! steps {
    () => {
        include_str!("../../migrations/postgres/0003_steps.sql")
    };
}

macro_rules! no_checks {
    () => {
        include_str!("../../migrations/postgres/0004_no_checks.sql")
    };
}

/// The version that this release reads and writes.
pub(super) const NEEDED: u32 = 4;

/// Everything that [`migrate`] does to an empty database.
pub(super) const SCHEMA: &str =
    concat!(first!(), "\n", records!(), "\n", leases_and_fences!(), "\n", steps!(), "\n", no_checks!());

/// Each brings the tables from the version before it to its own, which it records itself.
const MIGRATIONS: [(u32, &str); 4] = [(1, records!()), (2, leases_and_fences!()), (3, steps!()), (4, no_checks!())];

/// Sees that the tables are ours.
pub(super) async fn check(pool: &PgPool) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await.map_err(broken)?;
    let found = in_time(timeout(ANSWER, version(&mut connection)).await, &mut connection)?;
    if found < NEEDED {
        return Err(OpenError::Schema { found, needed: NEEDED });
    }
    Ok(())
}

/// Brings the tables to [`NEEDED`], unless they are there.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), OpenError> {
    let mut connection = pool.acquire().await.map_err(broken)?;
    let found = in_time(timeout(ANSWER, version(&mut connection)).await, &mut connection)?;
    if found == NEEDED {
        return Ok(());
    }
    in_time(timeout(MIGRATION, migrate_on(&mut connection)).await, &mut connection)
}

/// The same in one transaction: of two processes the second one finds everything done.
async fn migrate_on(connection: &mut PgConnection) -> Result<(), OpenError> {
    // No lock timeout here: whoever migrates beside us may take its time.
    let mut transaction = begin(connection).await?;
    transaction.execute(sqlx::raw_sql(sql::MIGRATE_ALONE)).await.map_err(broken)?;
    let found = version_in(&mut transaction).await?;
    transaction.execute(sqlx::raw_sql(first!())).await.map_err(broken)?;
    for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
        transaction.execute(sqlx::raw_sql(*migration)).await.map_err(broken)?;
    }
    transaction.commit().await.map_err(broken)
}

/// The version of the tables, 0 when there are none.
async fn version(connection: &mut PgConnection) -> Result<u32, OpenError> {
    // Both questions to one session, also behind a proxy that pools transactions.
    let mut transaction = begin(connection).await?;
    let found = version_in(&mut transaction).await?;
    transaction.rollback().await.map_err(broken)?;
    Ok(found)
}

async fn begin(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, OpenError> {
    connection.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.map_err(broken)
}

async fn version_in(transaction: &mut PgConnection) -> Result<u32, OpenError> {
    let row = transaction.fetch_one(sqlx::query(sql::MIGRATED).persistent(false)).await.map_err(broken)?;
    if !row.try_get::<bool, _>("migrated").map_err(broken)? {
        return Ok(0);
    }
    let row = transaction.fetch_one(sqlx::query(sql::VERSION).persistent(false)).await.map_err(broken)?;
    known(row.try_get("version").map_err(broken)?)
}

fn known(found: i64) -> Result<u32, OpenError> {
    match u32::try_from(found) {
        Ok(found) if found <= NEEDED => Ok(found),
        found => Err(OpenError::SchemaTooNew { found: found.unwrap_or(u32::MAX), needed: NEEDED }),
    }
}

fn broken(error: sqlx::Error) -> OpenError {
    OpenError::Store(store_error(error))
}
