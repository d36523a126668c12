//! An operation runs in a task of its own.

use idempotency::{StoreError, StoreErrorKind};
use tracing::Instrument;

/// Runs an operation that nobody interrupts: a caller that goes away, or that lives on and does not poll, must not
/// sit on a lock between two statements.
pub(crate) async fn run<T: Send + 'static>(
    operation: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(operation.in_current_span()).await.unwrap_or_else(|error| {
        // The runtime shuts down, or we have a bug.
        let kind = if error.is_panic() { StoreErrorKind::Refused } else { StoreErrorKind::Unavailable };
        Err(StoreError::new(kind, error))
    })
}
