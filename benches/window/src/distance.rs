//! How many other keys came since a key came last.

/// Counts keys by the place of their last arrival: a Fenwick tree over arrivals, which is numbered anew when it is full.
#[derive(Debug, Default)]
pub(crate) struct Distance {
    /// `tree[i]` counts the places (i - lowest bit of i, i], from 1.
    tree: Vec<u32>,
    /// Which key is at a place, from 1. Those that came again leave [`NOBODY`].
    keys: Vec<u32>,
    /// The place of each key.
    places: Vec<u32>,
    live: usize,
}

const NOBODY: u32 = u32::MAX;

impl Distance {
    /// A key that was never seen. Keys are numbered in the order in which they come.
    pub(crate) fn new_key(&mut self) {
        let key = self.places.len() as u32;
        self.places.push(0);
        self.live += 1;
        self.append(key);
    }

    /// A key that was: how many different keys came since, itself included. So many records must fit for it to be a hit.
    pub(crate) fn again(&mut self, key: u32) -> u64 {
        let place = self.places[key as usize];
        let distance = self.live as u64 - u64::from(self.count_to(place - 1));
        self.remove(place);
        self.keys[place as usize - 1] = NOBODY;
        self.append(key);
        if self.keys.len() > LEAST.max(4 * self.live) {
            self.number_anew();
        }
        distance
    }

    fn append(&mut self, key: u32) {
        let place = self.keys.len() as u32 + 1;
        self.keys.push(key);
        self.places[key as usize] = place;
        // The new node's children are the nodes that end where lower bits of its place are cut off.
        let (mut sum, mut child, least) = (1, place - 1, place & (place - 1));
        while child > least {
            sum += self.tree[child as usize - 1];
            child &= child - 1;
        }
        self.tree.push(sum);
    }

    fn remove(&mut self, mut place: u32) {
        while let Some(node) = self.tree.get_mut(place as usize - 1) {
            *node -= 1;
            place += place & place.wrapping_neg();
        }
    }

    fn count_to(&self, mut place: u32) -> u32 {
        let mut sum = 0;
        while place > 0 {
            sum += self.tree[place as usize - 1];
            place &= place - 1;
        }
        sum
    }

    fn number_anew(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        self.tree.clear();
        for key in keys.into_iter().filter(|key| *key != NOBODY) {
            self.append(key);
        }
    }
}

/// Below so many places, numbering anew is not worth it.
const LEAST: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_a_list_would_also_after_numbering_anew() {
        let (mut distance, mut list) = (Distance::default(), Vec::new());
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (state >> 40) as u32 % (list.len() as u32 + 1).min(40);
            if key as usize == list.len() {
                distance.new_key();
                list.push(key);
            } else {
                let place = list.iter().position(|k| *k == key).unwrap();
                assert_eq!(distance.again(key), (list.len() - place) as u64);
                list.remove(place);
                list.push(key);
            }
        }
        assert!(distance.keys.len() <= LEAST + 1);
    }
}
