//! How a [`MemoryStore`] is set up.

use idempotency::Clock;
use idempotency::time::SystemClock;

use crate::floors::Floors;
use crate::monotone::Monotone;
use crate::room::Room;
use crate::{Ceiling, CeilingError, MemoryStore};

/// Settings of a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    clock: C,
    max_records: Option<usize>,
    max_bytes: Option<usize>,
    shards: usize,
}

impl MemoryStoreBuilder {
    pub(crate) const fn new() -> Self {
        Self { clock: SystemClock, max_records: None, max_bytes: None, shards: SHARDS }
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
        let Self { max_records, max_bytes, shards, .. } = self;
        MemoryStoreBuilder { clock, max_records, max_bytes, shards }
    }

    /// How many parts it has, each with a lock of its own: at least one. Default 128.
    ///
    /// Few parts make threads wait for one another. What is done for a whole part at once, such as the growth of its index, takes
    /// the longer the more records it has: far beyond ten million records, more parts keep it short.
    pub fn shards(self, shards: usize) -> Self {
        Self { shards: shards.max(1), ..self }
    }

    /// The store, with nothing in it.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let clock = Monotone::new(self.clock);
        let floors = Floors::new(clock.now());
        MemoryStore::with(clock, self.shards, Room::new(self.max_records, self.max_bytes), floors)
    }

    /// The store, with nothing in it, under a ceiling kept in a file: a time-ordered key is granted only while it is dated at most at
    /// the ceiling, and after a restart no key dated at most at the last ceiling is. So such a key runs once, whatever is killed
    /// when, and a restart refuses such keys for a few seconds instead of for the length of their drift. Opaque keys are
    /// not touched by it.
    ///
    /// While the file cannot be written, time-ordered keys above the last ceiling are answered by a
    /// [`StoreError`](idempotency::StoreError), and nothing is run. Dropping the last clone of the store waits for a write that is
    /// under way.
    ///
    /// ```
    /// use idempotency_memory::{Ceiling, MemoryStore};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let ceiling = Ceiling::at(directory.path().join("payments.ceiling"));
    /// let store = MemoryStore::builder().max_records(100_000).build_under(&ceiling)?;
    ///
    /// // It is this store's alone.
    /// assert!(MemoryStore::builder().build_under(&ceiling).is_err());
    /// drop(store);
    /// let after_a_restart = MemoryStore::builder().build_under(&ceiling)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CeilingError`] when the file belongs to another store, is torn or not a ceiling, or cannot be read or written.
    pub fn build_under(self, ceiling: &Ceiling) -> Result<MemoryStore<C>, CeilingError> {
        let clock = Monotone::new(self.clock);
        let floors = Floors::under(ceiling.hold(clock.now())?);
        Ok(MemoryStore::with(clock, self.shards, Room::new(self.max_records, self.max_bytes), floors))
    }
}

/// Well above the number of threads that a machine runs at once.
const SHARDS: usize = 128;
