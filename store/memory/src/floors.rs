//! Below which time a time-ordered key is too old, and above which none is admitted yet, whatever the clock says.

use hashbrown::HashMap;
use idempotency::{AgeLimit, KeyClass, Record, StoreError, Timestamp};
use parking_lot::Mutex;

use crate::ceiling::HeldCeiling;

/// Nothing is known of what happened before this store began, and a key made by then may be dated up to the drift
/// ahead; so the floor of every class begins at the start plus its drift. With a ceiling on disk all that was run
/// before is dated at most at the ceiling of then, and the floor begins there. From there purges raise it.
#[derive(Debug)]
pub(crate) struct Floors {
    /// Before this nothing is known, and a key may have been dated up to its drift ahead.
    unknown_before: Timestamp,
    ceiling: Option<HeldCeiling>,
    purged: Mutex<HashMap<KeyClass, Timestamp>>,
}

/// A key that has to wait until the ceiling is at least here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AboveCeiling(Timestamp);

impl Floors {
    /// Of a store that remembers nothing of before `start`.
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { unknown_before: start, ceiling: None, purged: Mutex::default() }
    }

    /// Of a store whose earlier lives admitted no key above the ceiling that this one began with.
    pub(crate) fn under(ceiling: HeldCeiling) -> Self {
        Self { unknown_before: ceiling.unknown_before(), ceiling: Some(ceiling), purged: Mutex::default() }
    }

    /// The floor of keys under this limit; none for keys without one.
    pub(crate) fn of(&self, limit: Option<&AgeLimit>) -> Timestamp {
        let Some(limit) = limit else { return Timestamp::MIN };
        let purged = self.purged.lock().get(&limit.class).copied();
        let start = self.ceiling.as_ref().map_or(Timestamp::MIN, HeldCeiling::at_start);
        self.unknown_before.after(limit.drift).max(start).max(purged.unwrap_or(Timestamp::MIN))
    }

    /// Whether a key of this time may be granted now, as far as the ceiling goes. Asks for the next ceiling ahead of time.
    pub(crate) fn admit(&self, key_time: Timestamp, now: Timestamp) -> Result<(), AboveCeiling> {
        match &self.ceiling {
            Some(ceiling) if !ceiling.covers(key_time, now) => Err(AboveCeiling(key_time)),
            _ => Ok(()),
        }
    }

    /// Waits until a key that was above the ceiling no longer is.
    pub(crate) async fn rise(&self, AboveCeiling(key_time): AboveCeiling) -> Result<(), StoreError> {
        match &self.ceiling {
            Some(ceiling) => ceiling.wait_for(key_time).await,
            None => Ok(()),
        }
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
