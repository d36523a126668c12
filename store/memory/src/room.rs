//! How much a store may hold, exactly.

use parking_lot::Mutex;

/// What a record counts against [`max_bytes`](crate::MemoryStoreBuilder::max_bytes) besides its outcome, in bytes: about what
/// the record itself, its place in the map and in the order of expiry take while it may still change. A completed record takes
/// about a quarter of that, and counts as before, so that it has its room in any case.
pub const RECORD_OVERHEAD: usize = 512;

/// Counts records and bytes against their limits. Without limits it counts nothing, so that shards share nothing.
#[derive(Debug)]
pub(crate) struct Room {
    limits: Option<Used>,
    used: Mutex<Used>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    records: usize,
    bytes: usize,
}

impl Room {
    pub(crate) fn new(max_records: Option<usize>, max_bytes: Option<usize>) -> Self {
        let limits = Used { records: max_records.unwrap_or(usize::MAX), bytes: max_bytes.unwrap_or(usize::MAX) };
        let limited = max_records.is_some() || max_bytes.is_some();
        Self { limits: limited.then_some(limits), used: Mutex::default() }
    }

    /// Takes a record's place, or changes what it takes, before it is claimed. `None` is no record.
    ///
    /// Says whether there was room; if not, nothing has changed. What does not grow always has room.
    #[must_use]
    pub(crate) fn reserve(&self, before: Option<usize>, after: usize) -> bool {
        let Some(limits) = self.limits else { return true };
        let mut used = self.used.lock();
        let changed = used.changed(before, Some(after));
        let grows = |changed: usize, used: usize, limit: usize| changed > used && changed > limit;
        if grows(changed.records, used.records, limits.records) || grows(changed.bytes, used.bytes, limits.bytes) {
            return false;
        }
        *used = changed;
        true
    }

    /// Changes what a record takes, for what must never be refused.
    pub(crate) fn change(&self, before: Option<usize>, after: Option<usize>) {
        if self.limits.is_some() && before != after {
            let mut used = self.used.lock();
            *used = used.changed(before, after);
        }
    }
}

impl Used {
    fn changed(self, before: Option<usize>, after: Option<usize>) -> Self {
        let records = self.records + usize::from(after.is_some()) - usize::from(before.is_some());
        let bytes = self.bytes.saturating_add(after.unwrap_or(0)) - before.unwrap_or(0);
        Self { records, bytes }
    }
}
