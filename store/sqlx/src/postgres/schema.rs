//! The tables: what they are, and whether they are there.

use idempotency::OpenError;
use sqlx::postgres::PgPool;
use sqlx::{Executor, Row};

use super::db::{Db, Writing};
use super::error::{Failure, store_error};
use super::sql;

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

/// The version that this release reads and writes.
pub(super) const NEEDED: u32 = 3;

/// Everything that [`migrate`] does to an empty database.
pub(super) const SCHEMA: &str = concat!(first!(), "\n", records!(), "\n", leases_and_fences!(), "\n", steps!());

/// Each brings the tables from the version before it to its own, which it records itself.
const MIGRATIONS: [(u32, &str); 3] = [(1, records!()), (2, leases_and_fences!()), (3, steps!())];

/// Sees that the tables are ours.
pub(super) async fn check(db: &Db) -> Result<(), OpenError> {
    let mut writing = db.begin().await.map_err(unusable)?;
    let found = version(&mut writing).await?;
    writing.rollback().await.map_err(unusable)?;
    if found < NEEDED {
        return Err(OpenError::Schema { found, needed: NEEDED });
    }
    Ok(())
}

/// Brings the tables to [`NEEDED`], in one transaction: of two processes the second one finds everything done.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), OpenError> {
    // No lock timeout: whoever migrates beside us may take its time.
    let mut transaction = pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await.map_err(broken)?;
    transaction.execute(sqlx::raw_sql(sql::MIGRATE_ALONE)).await.map_err(broken)?;
    let found = match transaction.fetch_one(sqlx::query(sql::MIGRATED).persistent(false)).await.map_err(broken)? {
        row if row.try_get("migrated").map_err(broken)? => {
            let row = transaction.fetch_one(sqlx::query(sql::VERSION).persistent(false)).await.map_err(broken)?;
            known(row.try_get("version").map_err(broken)?)?
        }
        _ => 0,
    };
    transaction.execute(sqlx::raw_sql(first!())).await.map_err(broken)?;
    for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
        transaction.execute(sqlx::raw_sql(*migration)).await.map_err(broken)?;
    }
    transaction.commit().await.map_err(broken)
}

/// The version of the tables, 0 when there are none.
async fn version(writing: &mut Writing<'_>) -> Result<u32, OpenError> {
    let rows = writing.fetch_all(writing.db.query(sql::MIGRATED)).await.map_err(unusable)?;
    if !rows.first().is_some_and(|row| row.get("migrated")) {
        return Ok(0);
    }
    let rows = writing.fetch_all(writing.db.query(sql::VERSION)).await.map_err(unusable)?;
    known(rows.first().map_or(0, |row| row.get("version")))
}

fn known(found: i64) -> Result<u32, OpenError> {
    match u32::try_from(found) {
        Ok(found) if found <= NEEDED => Ok(found),
        found => Err(OpenError::SchemaTooNew { found: found.unwrap_or(u32::MAX), needed: NEEDED }),
    }
}

fn unusable(failure: Failure) -> OpenError {
    OpenError::Store(failure.into_store_error())
}

fn broken(error: sqlx::Error) -> OpenError {
    OpenError::Store(store_error(error))
}
