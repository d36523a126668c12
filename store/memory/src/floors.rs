//! Below which time a time-ordered key is too old, whatever the clock says.

use hashbrown::HashMap;
use idempotency::{AgeLimit, KeyClass, Record, Timestamp};
use parking_lot::Mutex;

/// Nothing is known of what happened before this store began, and a key made by then may be dated up to the drift
/// ahead; so the floor of every class begins at the start plus its drift. From there purges raise it.
#[derive(Debug)]
pub(crate) struct Floors {
    start: Timestamp,
    purged: Mutex<HashMap<KeyClass, Timestamp>>,
}

impl Floors {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, purged: Mutex::default() }
    }

    /// The floor of keys under this limit; none for keys without one.
    pub(crate) fn of(&self, limit: Option<&AgeLimit>) -> Timestamp {
        let Some(limit) = limit else { return Timestamp::MIN };
        let purged = self.purged.lock().get(&limit.class).copied();
        self.start.after(limit.drift).max(purged.unwrap_or(Timestamp::MIN))
    }

    /// Raises the floor of a record's class as its purge must. Called under the lock of the record's shard, so that no
    /// claim can find the record gone and the floor not yet raised.
    pub(crate) fn raise(&self, purged: &Record) {
        let Some((class, key_time)) = purged.floor() else { return };
        let mut floors = self.purged.lock();
        match floors.get_mut(class) {
            Some(floor) => *floor = key_time.max(*floor),
            None => drop(floors.insert(class.clone(), key_time)),
        }
    }
}
