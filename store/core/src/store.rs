//! The trait that every store implements.

use std::time::Duration;

use crate::watch::Watch;
use crate::{
    Claim, Claimed, Entry, Holder, Lease, List, Nonce, Outcome, Page, RecordId, Resolve, Resolved, Settled, Swept,
};

/// A dedup store: decides who runs, and remembers what came of it.
///
/// Each operation is atomic per record and judged on the store's own clock at the time it is carried
/// out, whether or not anybody sweeps. What each answers in each state is a table in the protocol; the
/// [conformance suite](crate::conformance) checks every row of it.
///
/// # Cancel safety
/// Dropping the future of any operation may or may not carry it out. All of them may be repeated: a
/// claim with its own nonce is granted again unchanged, the others answer
/// [`Settled::AlreadyApplied`]. A claimer that gives up on an answer abandons its nonce.
pub trait Store: Send + Sync + 'static {
    /// Asks to run. The one operation that decides.
    fn claim(&self, claim: &Claim) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Holds a claim for another `lease` from now. [`Settled::Superseded`] is a loss; an error is not.
    fn renew(&self, holder: &Holder, lease: Lease) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Records the outcome. Late is fine while nobody took over; never inserts.
    fn complete(&self, holder: &Holder, outcome: &Outcome) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Frees the key: for certain nothing happened. The nonce is dead for `dead_for`.
    fn release(&self, holder: &Holder, dead_for: Duration) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Says that nobody knows whether the effect happened, with the answer that was sent if there was one.
    fn mark_in_doubt(
        &self,
        holder: &Holder,
        response: Option<&Outcome>,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Gives up a claim whose answer never came and that was never run with: frees the record if it carries this
    /// nonce, and refuses late copies of the claim for `dead_for`.
    fn abandon(
        &self,
        id: &RecordId,
        nonce: Nonce,
        dead_for: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Settles a record in doubt by what somebody found out.
    fn resolve(&self, resolve: &Resolve) -> impl Future<Output = Result<Resolved, StoreError>> + Send;

    /// Hints that the record may have ended to be in flight, for those who wait for that. Only hints: they may come for nothing or
    /// never. Whoever waits asks again by [`claim`](Self::claim), and does so now and then without a hint. Asks nothing of the store, and
    /// a waiter holds nothing of it but this.
    ///
    /// Default: there are none, and waiters ask every so often.
    fn watch(&self, _id: &RecordId) -> Watch {
        Watch::none()
    }

    /// What is known of one record; none when its life is over.
    fn inspect(&self, id: &RecordId) -> impl Future<Output = Result<Option<Entry>, StoreError>> + Send;

    /// Records in the order of their ids, a page at a time.
    fn list(&self, list: &List) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Drops payloads and deletes rows whose time is over, at most `limit` rows. Safe beside live claims and on many
    /// replicas at once.
    fn sweep(&self, limit: usize) -> impl Future<Output = Result<Swept, StoreError>> + Send;
}

/// How long an abandoned or released nonce stays dead: longer than any message can be late. Twice the store
/// timeout plus one minute.
#[must_use]
pub fn dead_for(store_timeout: Duration) -> Duration {
    store_timeout.saturating_mul(2).saturating_add(Duration::from_secs(60))
}

/// The store could not say. It may or may not have carried the operation out.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub struct StoreError {
    kind: StoreErrorKind,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// An error of this kind, caused by `source`.
    pub fn new(kind: StoreErrorKind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the store will say the same again: what it holds cannot be read. What it refuses, such as a password that is being
    /// changed or tables that are not there yet, somebody may see to.
    pub(crate) fn is_final(&self) -> bool {
        self.kind == StoreErrorKind::Unreadable
    }

    pub(crate) const fn timeout() -> Self {
        Self { kind: StoreErrorKind::Timeout, source: None }
    }
}

/// Why a store could not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// It cannot be reached, or the connection broke.
    #[error("the store cannot be reached")]
    Unavailable,
    /// It did not answer in time.
    #[error("the store did not answer in time")]
    Timeout,
    /// Others held what was needed for too long; for certain nothing was carried out.
    #[error("the store is busy")]
    Busy,
    /// It holds something that this release cannot read.
    #[error("the store holds something unreadable")]
    Unreadable,
    /// It refused the operation itself: a bug, or tables that are not ours.
    #[error("the store refused the operation")]
    Refused,
}

/// Why a store could not be opened from a URL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is not one this store understands.
    #[error("not a usable store URL: {0}")]
    Url(String),
    /// The store's tables are missing or older than this release: migrate first.
    #[error("the store's tables are at version {found}, this release needs {needed}: migrate first")]
    Schema {
        /// The version found; 0 when there are none.
        found: u32,
        /// The version this release reads and writes.
        needed: u32,
    },
    /// The store's tables are newer than this release.
    #[error("the store's tables are at version {found}, this release knows only {needed}: upgrade the program")]
    SchemaTooNew {
        /// The version found.
        found: u32,
        /// The version this release reads and writes.
        needed: u32,
    },
    /// The store could not be reached.
    #[error("the store cannot be opened")]
    Store(#[from] StoreError),
}
