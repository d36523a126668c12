//! How a [`MemoryStore`] is set up.

use idempotency::Clock;
use idempotency::time::SystemClock;

use crate::MemoryStore;

/// Settings of a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    clock: C,
    max_records: Option<usize>,
    max_bytes: Option<usize>,
}

impl MemoryStoreBuilder {
    pub(crate) const fn new() -> Self {
        Self { clock: SystemClock, max_records: None, max_bytes: None }
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// The most records it holds, of whatever state. Default: no limit.
    ///
    /// A claim of a new key beyond that is answered [`Claimed::Full`](idempotency::Claimed::Full): a record is never
    /// evicted, since a forgotten record is a silent second execution. So a limit below what the windows keep (rate of
    /// keys × tombstone window) refuses service. What an abandon leaves is not refused and may exceed the limit.
    pub fn max_records(self, records: usize) -> Self {
        Self { max_records: Some(records), ..self }
    }

    /// The most bytes it holds. Default: no limit.
    ///
    /// A record counts [`RECORD_OVERHEAD`](crate::RECORD_OVERHEAD) and, while it runs or is in doubt, the room that its
    /// claim asked for; afterwards the size of its outcome. So a completion always has its room. An outcome larger
    /// than the room its claim asked for is kept as well, and counted. Each call of an outbound step counts
    /// [`CALL_OVERHEAD`](crate::CALL_OVERHEAD) and its result, twice while it is the step's: a call that does not fit is not begun,
    /// and the result of one that was begun is kept in any case.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { max_bytes: Some(bytes), ..self }
    }

    /// The clock that decides every expiry. Default: the system's wall clock. A clock that runs at another speed makes
    /// windows and leases longer or shorter; one that steps back makes them wait.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { clock, max_records: self.max_records, max_bytes: self.max_bytes }
    }

    /// The store, with nothing in it.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        MemoryStore::with(self.clock, self.max_records, self.max_bytes)
    }
}
