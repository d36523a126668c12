//! What the errors of MySQL, MariaDB and sqlx mean for a store.

use idempotency::{StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// Why one try of an operation came to nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// Others were in the way, and for certain nothing was carried out: try again.
    Again(Box<dyn std::error::Error + Send + Sync>),
    /// That is the answer.
    Store(StoreError),
}

impl Failure {
    /// Everything changed between two looks at it.
    pub(super) fn changed() -> Self {
        Self::Again("the record changed at every look".into())
    }

    /// When there is no time for another try.
    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            Self::Again(source) => StoreError::new(StoreErrorKind::Busy, source),
            Self::Store(error) => error,
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        match number(&error) {
            Some(number) if is_in_the_way(number) || is_serialization_failure(&error) => Self::Again(error.into()),
            _ => Self::Store(store_error(error)),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Whether the server said, in answer to a COMMIT, that it rolled back: a deadlock, a conflict found late by a cluster. Anything
/// else may have come after the commit.
pub(super) fn is_certain_rollback(error: &sqlx::Error) -> bool {
    number(error).is_some_and(is_in_the_way) || is_serialization_failure(error)
}

/// Says what an error means, by its number and never by its text.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    let kind = match &error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Unreadable,
        sqlx::Error::Database(_) if is_serialization_failure(&error) => StoreErrorKind::Busy,
        sqlx::Error::Database(_) => number(&error).map_or(StoreErrorKind::Refused, kind_of),
        // The pool goes on trying to connect until its time is over.
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            StoreErrorKind::Unavailable
        }
        _ => StoreErrorKind::Refused,
    };
    StoreError::new(kind, error)
}

/// Whether there is no such table.
pub(super) fn is_no_such_table(error: &sqlx::Error) -> bool {
    number(error) == Some(1146)
}

/// <https://mariadb.com/kb/en/mariadb-error-code-reference/>,
/// <https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html>
fn kind_of(number: u16) -> StoreErrorKind {
    match number {
        _ if is_in_the_way(number) => StoreErrorKind::Busy,
        // Cancelled by hand; `max_execution_time` of MySQL, `max_statement_time` of MariaDB.
        1317 | 3024 | 1969 => StoreErrorKind::Timeout,
        // Too many connections, in all or of this user; shutting down; killed; idle for too long.
        1040 | 1203 | 1226 | 1129 | 1053 | 1927 | 4031 => StoreErrorKind::Unavailable,
        // A packet or a connection that broke; a cluster's node that is not part of it.
        1047 | 1152 | 1156 | 1158..=1161 | 1184 => StoreErrorKind::Unavailable,
        // A replica, or a server that was told to be read-only.
        1290 | 1792 | 1836 => StoreErrorKind::Unavailable,
        // No disk, memory, threads, locks or transactions left; what the engine says of a disk.
        1021 | 1026 | 1030 | 1037 | 1038 | 1041 | 1114 | 1135 | 1206 | 1461 | 1637 => StoreErrorKind::Unavailable,
        // Corrupted data or index.
        1034 | 1194 | 1195 | 1712 => StoreErrorKind::Unreadable,
        _ => StoreErrorKind::Refused,
    }
}

/// A wait for a lock that ended, with or without time; a deadlock; a row that changed since it was read; a key that somebody
/// else inserted first.
const fn is_in_the_way(number: u16) -> bool {
    matches!(number, 1205 | 3572 | 1213 | 1020 | 1062)
}

fn is_serialization_failure(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|state| state == "40001")
}

fn number(error: &sqlx::Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}
