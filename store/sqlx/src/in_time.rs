//! What is asked of a server before there is a store is waited for so long and no longer.

use std::time::Duration;

use idempotency::{OpenError, StoreError, StoreErrorKind};
use sqlx::Database;
use sqlx::pool::PoolConnection;
use tokio::time::error::Elapsed;

/// What was answered on a connection in time. One on which nothing was is closed when it is dropped: before the pool takes one back, it waits
/// for its answers.
pub(crate) fn in_time<T, D: Database>(
    answered: Result<Result<T, OpenError>, Elapsed>,
    connection: &mut PoolConnection<D>,
) -> Result<T, OpenError> {
    answered.unwrap_or_else(|late| {
        connection.close_on_drop();
        Err(OpenError::Store(StoreError::new(StoreErrorKind::Timeout, late)))
    })
}

/// For the answer to whether the tables are there: a link can lose what it carries without a word.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// For the tables to be made, by this process or by another one that is at it.
pub(crate) const MIGRATION: Duration = Duration::from_secs(600);
