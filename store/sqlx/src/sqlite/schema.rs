//! The tables: what they are, and whether they are there.

use std::path::Path;

use idempotency::{OpenError, StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, Executor, Row};

use super::connections::{Deadline, connect};
use super::db::cached;
use super::error::{cannot_open, is_busy, store_error};
use super::sql;

macro_rules! first {
    () => {
        include_str!("../../migrations/sqlite/0000_migrations.sql")
    };
}
macro_rules! records {
    () => {
        include_str!("../../migrations/sqlite/0001_records.sql")
    };
}
macro_rules! leases_and_fences {
    () => {
        include_str!("../../migrations/sqlite/0002_leases_and_fences.sql")
    };
}

macro_rules! steps {
    () => {
        include_str!("../../migrations/sqlite/0003_steps.sql")
    };
}

/// The version that this release reads and writes.
pub(super) const NEEDED: u32 = 3;

/// Everything that [`migrate`] does to an empty file.
pub(super) const SCHEMA: &str = concat!(first!(), "\n", records!(), "\n", leases_and_fences!(), "\n", steps!());

/// Each brings the tables from the version before it to its own, which it records itself.
const MIGRATIONS: [(u32, &str); 3] = [(1, records!()), (2, leases_and_fences!()), (3, steps!())];

/// Opens the first connection and sees that the tables are ours.
pub(super) async fn open(options: &SqliteConnectOptions, deadline: Deadline) -> Result<SqliteConnection, OpenError> {
    loop {
        match open_once(options, deadline).await {
            Err(OpenError::Store(error)) if try_again(&error, deadline).await => {}
            result => return result,
        }
    }
}

async fn open_once(options: &SqliteConnectOptions, deadline: Deadline) -> Result<SqliteConnection, OpenError> {
    let mut connection = match connect(options, deadline).await {
        Ok(connection) => connection,
        Err(error) if cannot_open(&error) && could_be_made(options.get_filename()) => {
            return Err(OpenError::Schema { found: 0, needed: NEEDED });
        }
        Err(error) => return Err(unusable(error)),
    };
    on_disk(&mut connection).await?;
    let found = version(&mut connection).await?;
    if found < NEEDED {
        return Err(OpenError::Schema { found, needed: NEEDED });
    }
    writable(&mut connection).await?;
    Ok(connection)
}

/// Makes the file and brings the tables to [`NEEDED`], in one transaction: of two processes the second one finds
/// everything done.
pub(super) async fn migrate(options: SqliteConnectOptions, deadline: Deadline) -> Result<(), OpenError> {
    let options = options.create_if_missing(true);
    loop {
        match migrate_once(&options, deadline).await {
            Err(OpenError::Store(error)) if try_again(&error, deadline).await => {}
            result => return result,
        }
    }
}

async fn migrate_once(options: &SqliteConnectOptions, deadline: Deadline) -> Result<(), OpenError> {
    let mut connection = connect(options, deadline).await.map_err(unusable)?;
    on_disk(&mut connection).await?;
    if version(&mut connection).await? < NEEDED {
        connection.execute(cached(sql::BEGIN)).await.map_err(unusable)?;
        // Again: another process may have done it meanwhile.
        let found = version(&mut connection).await?;
        connection.execute(sqlx::raw_sql(first!())).await.map_err(unusable)?;
        for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > found) {
            connection.execute(sqlx::raw_sql(*migration)).await.map_err(unusable)?;
        }
        connection.execute(cached(sql::COMMIT)).await.map_err(unusable)?;
    }
    connection.close().await.map_err(unusable)
}

/// Whether somebody was in the way and there is time for another try. It gets a connection of its own, so nothing of
/// this one is left.
async fn try_again(error: &StoreError, deadline: Deadline) -> bool {
    error.kind() == StoreErrorKind::Busy && deadline.pause().await
}

/// Refuses what no second connection could see, and a file that cannot have a write-ahead log.
async fn on_disk(connection: &mut SqliteConnection) -> Result<(), OpenError> {
    let row = cached(sql::FILE_AND_JOURNAL).fetch_one(connection).await.map_err(unusable)?;
    let file: Option<&str> = row.try_get("file").map_err(unusable)?;
    if file.is_none_or(str::is_empty) {
        return Err(OpenError::Url("a store in SQLite needs a file: a database in memory is forgotten".into()));
    }
    let journal: &str = row.try_get("journal_mode").map_err(unusable)?;
    if !journal.eq_ignore_ascii_case("wal") {
        let message = format!("the database's journal mode is `{journal}` and cannot be made `wal`");
        return Err(StoreError::new(StoreErrorKind::Refused, message).into());
    }
    Ok(())
}

/// The version of the tables, 0 when there are none.
async fn version(connection: &mut SqliteConnection) -> Result<u32, OpenError> {
    let row = cached(sql::MIGRATED).fetch_one(&mut *connection).await.map_err(unusable)?;
    if row.try_get::<i64, _>("tables").map_err(unusable)? == 0 {
        return Ok(0);
    }
    let row = cached(sql::VERSION).fetch_one(connection).await.map_err(unusable)?;
    let found = row.try_get("version").map_err(unusable)?;
    if found > NEEDED {
        return Err(OpenError::SchemaTooNew { found, needed: NEEDED });
    }
    Ok(found)
}

/// Refuses a file that SQLite could open only for reading. Whoever finds it locked can write.
async fn writable(connection: &mut SqliteConnection) -> Result<(), OpenError> {
    match connection.execute(cached(sql::BEGIN)).await {
        Ok(_) => {}
        Err(error) if is_busy(&error) => return Ok(()),
        Err(error) => return Err(unusable(error)),
    }
    connection.execute(cached(sql::TOUCH)).await.map_err(unusable)?;
    connection.execute(cached(sql::ROLLBACK)).await.map(drop).map_err(unusable)
}

/// Whether the file is missing only because nobody made it.
fn could_be_made(file: &Path) -> bool {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    !file.exists() && folder.is_dir()
}

fn unusable(error: sqlx::Error) -> OpenError {
    OpenError::Store(store_error(error))
}
