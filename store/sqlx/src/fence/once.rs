//! The marker that makes a fenced effect safe to run again.

use idempotency::RecordId;

use super::{FenceDatabase, FenceError, FencedTransaction};

/// Whether an effect was there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an effect that was there already must not happen again"]
pub enum Once {
    /// No: do it, in this transaction.
    First,
    /// Yes, in a transaction that was committed.
    Already,
}

/// Marks the effect of a record as done, in the transaction that does it: marker and effect are there together, or
/// neither is. Of two at once the second one waits until the first has committed or rolled back.
///
/// A fence orders writers; it does not make a repeat a no-op. An attempt that wrote through its fence and died is run
/// again under [`Recovery::Rerun`](idempotency::Recovery::Rerun), with a larger token, and would write again.
///
/// Markers are kept until [`forget_once`](super::Fences::forget_once) removes them: after the tombstone window of the
/// records.
///
/// # Errors
/// [`FenceError::Store`]; the transaction can then only be rolled back. At
/// [`Isolation::RepeatableRead`](crate::Isolation) and above it may be of kind
/// [`Busy`](idempotency::StoreErrorKind::Busy): run the whole again.
///
/// # Cancel safety
/// Dropped: the transaction can only be rolled back.
pub async fn once<D: FenceDatabase>(transaction: &mut FencedTransaction<D>, id: &RecordId) -> Result<Once, FenceError> {
    let first = transaction.mark(id).await?;
    Ok(if first { Once::First } else { Once::Already })
}
