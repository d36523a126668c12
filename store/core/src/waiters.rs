//! How many duplicates of one process wait at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts those who wait. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters(Arc<AtomicUsize>);

impl Waiters {
    /// A place for one more, unless `most` wait already.
    pub(crate) fn sit(&self, most: usize) -> Option<Place> {
        let one_more = |now: usize| (now < most).then(|| now + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Place(self.clone()))
    }
}

/// The place of one who waits; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Waiters);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_places_and_each_is_free_again() {
        let waiters = Waiters::default();
        let (first, _second) = (waiters.sit(2), waiters.sit(2));
        assert!(first.is_some() && waiters.clone().sit(2).is_none());
        assert!(waiters.sit(3).is_some(), "another kind of work may have more");
        drop(first);
        assert!(waiters.sit(2).is_some());
        assert!(Waiters::default().sit(0).is_none());
    }
}
