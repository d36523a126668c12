//! Why a fence was not opened.

use idempotency::{FencingToken, LeaseLost, StoreError, TokenSource};

/// Why a fence was not opened, or what was opened was not committed. Nothing was written, except where it says that
/// nobody knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// Somebody newer was here first, or the same token was used by another holder. Whoever gets this stops: its lease
    /// is over.
    #[error("superseded: the fence has admitted the token {current}")]
    Superseded {
        /// The token that the fence admitted last.
        current: FencingToken,
    },
    /// Under [`Admit::StrictlyNewer`](super::Admit::StrictlyNewer): this very token has been admitted before and its
    /// transaction was committed. So a repeat after a lost acknowledgement is told apart from being superseded.
    ///
    /// A token without a holder is recognised by its number alone: somebody has used it.
    #[error("the token was used already")]
    AlreadyApplied,
    /// The fence has seen tokens of another source, and the tokens of two sources say nothing about each other. An
    /// operator moves it over with [`reset`](super::Fences::reset).
    #[error("the fence takes tokens from {stored:?}")]
    SourceMismatch {
        /// Where its tokens come from.
        stored: TokenSource,
    },
    /// The token is more than an hour ahead of the database's clock: of a clock that is wrong, which must not shut the
    /// fence for everybody else. It was not stored.
    #[error("the token is from the far future")]
    FromTheFuture,
    /// Nothing is known of this resource, and a token so old may have been superseded by one that was forgotten.
    #[error("the token is too old to tell whether somebody newer was here")]
    BelowWatermark {
        /// The oldest token that is admitted where nothing is known.
        least: FencingToken,
    },
    /// The database may have been set back since the opening: it was failed over or restored, and what this tenure
    /// committed, or read, may be gone. Or the fence was purged meanwhile. Open anew, and read again.
    #[error("the database may have been set back since the fence was opened")]
    Rewound,
    /// The lease that was to open the fence is lost.
    #[error(transparent)]
    LeaseLost(#[from] LeaseLost),
    /// A statement in the transaction failed, or ended it. It was rolled back.
    #[error("the transaction had failed before it was committed")]
    Poisoned,
    /// The database could not say. From [`commit`](super::FencedTransaction::commit), unless it is
    /// [`Busy`](idempotency::StoreErrorKind::Busy): nobody knows whether it was committed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
