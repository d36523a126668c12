//! Where entries are, by their hashes.

/// A table in the order of its hashes: a slot holds the upper bits of a hash and the place of an entry, and stands at its hash's own
/// place or, while that is taken, behind it. So it is filled to five sixths, and grown by a quarter in one run from front to back,
/// without a look at the entries: a hundred thousand take some tenths of a millisecond.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// 0 is an empty slot. Those at the end may stand behind the last place.
    slots: Vec<u64>,
    places: usize,
    len: usize,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many slots it keeps, used or not.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The slot and the place of the entry that `is_it`.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<(usize, u64)> {
        let hash = hash >> PLACE_BITS;
        let taken = self.slots.iter().enumerate().skip(self.home(hash)).take_while(|(_, slot)| **slot != EMPTY);
        for (at, slot) in taken {
            let other = slot >> PLACE_BITS;
            if other > hash {
                break;
            }
            if other == hash && is_it(slot & PLACE) {
                return Some((at, slot & PLACE));
            }
        }
        None
    }

    /// Adds an entry at `place`, which is not 0 and has at most [`PLACE_BITS`] bits.
    pub(super) fn insert(&mut self, hash: u64, place: u64) {
        if (self.len + 1) * 6 > self.places * 5 {
            self.resize(self.places + self.places / 4 + 4);
        }
        self.len += 1;
        let hash = hash >> PLACE_BITS;
        let mut at = self.home(hash);
        let before = |slot: u64| slot != EMPTY && slot >> PLACE_BITS <= hash;
        while self.slots.get(at).is_some_and(|slot| before(*slot)) {
            at += 1;
        }
        let mut moving = hash << PLACE_BITS | place;
        while let Some(slot) = self.slots.get_mut(at) {
            moving = std::mem::replace(slot, moving);
            if moving == EMPTY {
                return;
            }
            at += 1;
        }
        self.slots.reserve_exact(1);
        self.slots.push(moving);
    }

    /// Empties a slot that [`find`](Self::find) gave, and moves up what stands behind it because of it.
    pub(super) fn remove(&mut self, mut at: usize) {
        self.len -= 1;
        while let Some(next) = self.slots.get(at + 1).copied().filter(|slot| *slot != EMPTY) {
            if self.home(next >> PLACE_BITS) > at {
                break;
            }
            self.slots[at] = next;
            at += 1;
        }
        self.slots[at] = EMPTY;
        if self.places > SMALL && self.len < self.places / 4 {
            self.resize(self.len * 2);
        }
    }

    fn home(&self, hash: u64) -> usize {
        // The hash as a share of all hashes is the place as a share of all places. Below 2^24 hashes and places it fits.
        usize::try_from((hash * self.places as u64) >> HASH_BITS).unwrap_or(0)
    }

    fn resize(&mut self, places: usize) {
        self.places = places;
        let old = std::mem::take(&mut self.slots);
        let mut slots = Vec::with_capacity(places + END);
        for slot in old.into_iter().filter(|slot| *slot != EMPTY) {
            let at = self.home(slot >> PLACE_BITS).max(slots.len());
            slots.resize(at, EMPTY);
            slots.push(slot);
        }
        slots.resize(places.max(slots.len()), EMPTY);
        self.slots = slots;
    }
}

/// How much of a slot is the place of its entry.
pub(super) const PLACE_BITS: u32 = 40;

const HASH_BITS: u32 = u64::BITS - PLACE_BITS;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const EMPTY: u64 = 0;

/// Slots kept behind the last place; more are added one by one.
const END: usize = 8;

/// Below so many places nothing is given back.
const SMALL: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Every second hash is shared by many, at the end of the table too, where there is no place behind the last.
    fn hash(n: u64) -> u64 {
        match n % 4 {
            0 => u64::MAX - (n % 3),
            1 => (n % 5) << 60,
            _ => n.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        }
    }

    #[test]
    fn what_is_in_it_is_found_and_nothing_else_whatever_came_and_went() {
        let (mut index, mut model) = (Index::default(), HashMap::new());
        let mut chance = 1_u64;
        for round in 0..60_000_u64 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Grows to some hundreds and shrinks to some dozens, several times.
            let n = chance >> 32 & 511;
            let grows = (round / 5_000) % 2 == 0;
            if (chance >> 50) % 8 < if grows { 6 } else { 2 } {
                if model.insert(n, n + 1).is_none() {
                    index.insert(hash(n), n + 1);
                }
            } else if model.remove(&n).is_some() {
                let (at, _) = index.find(hash(n), |place| place == n + 1).unwrap();
                index.remove(at);
            }
            assert_eq!(index.len(), model.len());
            let asked = chance >> 20 & 511;
            let found = index.find(hash(asked), |place| place == asked + 1).map(|(_, place)| place);
            assert_eq!(found, model.get(&asked).copied());
        }
        for n in 0..512 {
            let found = index.find(hash(n), |place| place == n + 1).map(|(_, place)| place);
            assert_eq!(found, model.get(&n).copied());
        }
    }

    #[test]
    fn it_takes_some_twelve_bytes_an_entry_and_gives_them_back() {
        let mut index = Index::default();
        let hash = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for n in 1..=10_000 {
            index.insert(hash(n), n);
            assert!(n < 1000 || index.capacity() * 8 <= n as usize * 13, "{} slots for {n}", index.capacity());
        }
        for n in 1..=10_000 {
            let (at, _) = index.find(hash(n), |place| place == n).unwrap();
            index.remove(at);
        }
        assert!(index.len() == 0 && index.capacity() <= SMALL + END, "{} slots are left", index.capacity());
    }
}
