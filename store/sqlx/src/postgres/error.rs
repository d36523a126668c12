//! What PostgreSQL's and sqlx's errors mean for a store.

use idempotency::{StoreError, StoreErrorKind};

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
        match sqlstate(&error).as_deref() {
            Some(SERIALIZATION_FAILURE | DEADLOCK_DETECTED) => Self::Again(error.into()),
            _ => Self::Store(store_error(error)),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Says what an error means, by its SQLSTATE and never by its text.
pub(crate) fn store_error(error: sqlx::Error) -> StoreError {
    let kind = match &error {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreErrorKind::Unreadable,
        sqlx::Error::Database(_) => sqlstate(&error).map_or(StoreErrorKind::Refused, |state| kind_of(&state)),
        // The pool goes on trying to connect until its time is over.
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            StoreErrorKind::Unavailable
        }
        _ => StoreErrorKind::Refused,
    };
    StoreError::new(kind, error)
}

/// Whether the server said, in answer to a COMMIT, that it rolled back: serialisation, a deadlock, a deferred constraint, a
/// transaction that had failed before. Anything else may have come after the commit, as the end of the session by an
/// administrator can. Class 40 has one that says that nobody knows, which `CockroachDB` answers.
pub(super) fn is_certain_rollback(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|state| {
        state != STATEMENT_COMPLETION_UNKNOWN && ["23", "25", "40"].iter().any(|class| state.starts_with(class))
    })
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn kind_of(state: &str) -> StoreErrorKind {
    match state {
        SERIALIZATION_FAILURE | DEADLOCK_DETECTED | "55P03" => StoreErrorKind::Busy,
        // The statement was cancelled, by `statement_timeout` or by hand.
        "57014" => StoreErrorKind::Timeout,
        // A standby, which cannot begin to write, or one that was told to be read-only.
        "0A000" | "25006" => StoreErrorKind::Unavailable,
        // Idle in a transaction for too long: the session is gone, and the transaction with it.
        "25P03" => StoreErrorKind::Unavailable,
        // Corrupted data or index.
        "XX001" | "XX002" => StoreErrorKind::Unreadable,
        // Connection, insufficient resources, operator intervention, system error.
        _ if ["08", "53", "57", "58"].iter().any(|class| state.starts_with(class)) => StoreErrorKind::Unavailable,
        _ => StoreErrorKind::Refused,
    }
}

fn sqlstate(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK_DETECTED: &str = "40P01";
const STATEMENT_COMPLETION_UNKNOWN: &str = "40003";
