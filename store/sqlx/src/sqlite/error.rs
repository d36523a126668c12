//! What SQLite's and sqlx's errors mean for a store.

use idempotency::{StoreError, StoreErrorKind};

/// Says what an error means, by SQLite's result code and never by its text.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    let kind = match &error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Unreadable,
        sqlx::Error::Database(_) => match primary_code(&error) {
            Some(BUSY | LOCKED | PROTOCOL) => StoreErrorKind::Busy,
            Some(CORRUPT | NOT_A_DATABASE) => StoreErrorKind::Unreadable,
            Some(NO_MEMORY | READ_ONLY | IO | FULL | CANNOT_OPEN) => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Refused,
        },
        sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    };
    StoreError::new(kind, error)
}

/// Whether others held what was needed. `SQLITE_BUSY_SNAPSHOT`, `SQLITE_BUSY_RECOVERY` and
/// `SQLITE_LOCKED_SHAREDCACHE` are extended codes of these; `SQLITE_PROTOCOL` is a lost race to begin to read.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(BUSY | LOCKED | PROTOCOL))
}

/// Whether the statement could not be meant, such as a RELEASE of a savepoint that is gone.
pub(crate) fn is_misuse(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(ERROR)
}

/// Whether the file is not there, or may not be touched.
pub(super) fn cannot_open(error: &sqlx::Error) -> bool {
    primary_code(error) == Some(CANNOT_OPEN)
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xFF)
}

/// The time to wait is over; nothing was begun.
pub(super) fn waited() -> StoreError {
    StoreError::new(StoreErrorKind::Busy, "no connection became free within the busy timeout")
}

// https://sqlite.org/rescode.html
const ERROR: i32 = 1;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const READ_ONLY: i32 = 8;
const IO: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANNOT_OPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const NOT_A_DATABASE: i32 = 26;
