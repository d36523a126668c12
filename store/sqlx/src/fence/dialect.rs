//! What the databases differ in.

use std::time::Duration;

use idempotency::{FencingToken, StoreError, StoreErrorKind, Timestamp, TokenSource};
use sqlx::Database;

use super::FenceError;
use super::admit::{Asked, Stored};
use super::tries::Refusal;
use crate::row::{Columns, Unreadable, Values, refuse, token, token_number};

/// A database that has fences: `Postgres`, `MySql`, `Sqlite` of sqlx.
#[allow(private_bounds, reason = "sealed: the statements are ours")]
pub trait FenceDatabase: Dialect {}

/// Statements and what their errors mean.
pub(crate) trait Dialect: Database<Row: Columns> {
    type Ours: Values + Send + 'static;

    /// Admits where the fence is there, and says with what token and when; no row where it is refused, or there is
    /// none. Only where a statement can change a row and return it.
    const ADVANCE: Option<&'static str>;
    /// Takes a fence's row, if there is one.
    const LOCK: &'static str;
    /// The same, beside others who only look.
    const LOCK_SHARED: &'static str;
    /// Writes a row that is held: source, token, holder, time.
    const WRITE: &'static str;
    /// Makes a row, unless there is one meanwhile.
    const INSERT: &'static str;
    /// Reads a source's watermark, and keeps it from being raised until the end of the transaction.
    const SHARE_WATERMARK: &'static str;
    /// Raises it.
    const RAISE_WATERMARK: &'static str;
    /// The fences below it that nobody holds, taken.
    const STALE_FENCES: &'static str;
    const DELETE_FENCE: &'static str;
    /// Marks a record's effect.
    const ONCE: &'static str;
    const FORGET_ONCE: &'static str;
    /// Between two tries, at most.
    const LONGEST_PAUSE: Duration;

    /// A statement of ours. `kept` is whether it may be prepared once a session.
    fn statement(sql: &'static str, kept: bool) -> Self::Ours;

    fn fetch(
        connection: &mut Self::Connection,
        statement: Self::Ours,
    ) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;

    /// How many rows were changed.
    fn change(
        connection: &mut Self::Connection,
        statement: Self::Ours,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Sees, before a commit, that the transaction is the one that was begun, where no other statement would.
    fn check(_: &mut Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send {
        async { Ok(()) }
    }

    /// Whether that, or any statement, says that the transaction is over.
    fn is_over(error: &sqlx::Error) -> bool;

    /// Whether the row was there already.
    fn is_duplicate(error: &sqlx::Error) -> bool {
        error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
    }

    fn store_error(error: sqlx::Error) -> StoreError;

    /// What an error means after statements of the caller's.
    fn failed(error: sqlx::Error) -> FenceError {
        if Self::is_over(&error) { FenceError::Poisoned } else { Self::store_error(error).into() }
    }

    fn refusal(error: sqlx::Error) -> Refusal {
        let error = Self::store_error(error);
        if error.kind() == StoreErrorKind::Busy { Refusal::Again(error) } else { error.into() }
    }

    /// Binds a fence's new contents: resource, source, token, holder, time.
    fn written(statement: Self::Ours, asked: &Asked, token: Option<FencingToken>, opened_at: Timestamp) -> Self::Ours {
        statement
            .blob(Some(asked.resource.as_bytes()))
            .integer(Some(asked.source.number().into()))
            .integer(Some(token.map_or(0, token_number)))
            .blob(Some(&asked.holder))
            .integer(Some(opened_at.micros()))
    }
}

/// A fence in a row of ours, and the clock that was read with it.
pub(crate) fn stored(row: &impl Columns) -> Result<(Timestamp, Stored), StoreError> {
    let holder = row.blob("holder").map_err(column)?.unwrap_or_default();
    let stored = Stored {
        source: source(integer(row, "source")?)?,
        token: token(integer(row, "token")?),
        holder: holder.try_into().map_err(|_| refuse(Unreadable::Value("holder")))?,
        opened_at: Timestamp::from_micros(integer(row, "opened_at")?),
    };
    Ok((crate::row::now(row)?, stored))
}

pub(crate) fn integer(row: &impl Columns, name: &'static str) -> Result<i64, StoreError> {
    row.integer(name).map_err(column)?.ok_or_else(|| refuse(Unreadable::Value(name)))
}

pub(crate) fn bytes(row: &impl Columns, name: &'static str) -> Result<Vec<u8>, StoreError> {
    Ok(row.blob(name).map_err(column)?.unwrap_or_default().to_vec())
}

fn source(number: i64) -> Result<TokenSource, StoreError> {
    u16::try_from(number).map(TokenSource::new).map_err(|_| refuse(Unreadable::Value("source")))
}

fn column(error: sqlx::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unreadable, error)
}
