//! Figures per route and scope.

use std::collections::HashMap;

use xxhash_rust::xxh3::Xxh3;

use crate::result::{Count, Group};

/// Every pair of route and scope that had a key, up to a limit; what is beyond it shares one place.
#[derive(Debug)]
pub(crate) struct Groups {
    most: usize,
    places: HashMap<u64, u32>,
    all: Vec<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    route: String,
    scope: String,
    arrivals: u64,
    /// Operations by how many windows of the grid are judged by them.
    operations: Vec<u64>,
    keys: u64,
    /// Of all its keys and of those that judge. None until a key came again, as in most.
    sums: Option<Box<[[Sums; 3]; 2]>>,
}

/// What ran again, by window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums(Vec<Count>);

impl Groups {
    pub(crate) fn new(most: usize) -> Self {
        let others = Figures { route: OTHERS.to_owned(), scope: OTHERS.to_owned(), ..Figures::default() };
        Self { most, places: HashMap::new(), all: vec![others] }
    }

    /// Where a key of this route and scope is counted.
    pub(crate) fn place(&mut self, route: &str, scope: &str) -> u32 {
        let mut hash = Xxh3::new();
        hash.update(&(route.len() as u64).to_le_bytes());
        hash.update(route.as_bytes());
        hash.update(scope.as_bytes());
        let hash = hash.digest();
        if let Some(place) = self.places.get(&hash) {
            return *place;
        }
        if self.all.len() > self.most {
            return 0;
        }
        let place = self.all.len() as u32;
        self.places.insert(hash, place);
        self.all.push(Figures { route: route.to_owned(), scope: scope.to_owned(), ..Figures::default() });
        place
    }

    pub(crate) fn arrival(&mut self, place: u32) {
        self.all[place as usize].arrivals += 1;
    }

    /// A key that the first `judged` of `windows` are judged by.
    pub(crate) fn operation(&mut self, place: u32, judged: usize, windows: usize) {
        let operations = &mut self.all[place as usize].operations;
        operations.resize(windows + 1, 0);
        operations[judged] += 1;
        self.all[place as usize].keys += 1;
    }

    /// Of all keys and of those that judge.
    pub(crate) fn sums(&mut self, place: u32) -> &mut [[Sums; 3]; 2] {
        self.all[place as usize].sums.get_or_insert_default()
    }

    pub(crate) fn finish(self, windows: usize) -> Vec<Group> {
        let used = self.all.into_iter().filter(|figures| figures.arrivals > 0);
        used.map(|figures| {
            let [all, judging] = *figures.sums.unwrap_or_default();
            let operations = judged(&figures.operations, windows);
            Group {
                route: figures.route,
                scope: figures.scope,
                arrivals: figures.arrivals,
                all: all.map(|sums| sums.counts(&vec![figures.keys; windows])),
                counts: judging.map(|sums| sums.counts(&operations)),
            }
        })
        .collect()
    }
}

impl Sums {
    /// A key ran again so often under window number `window`, and stands for `weight` keys.
    pub(crate) fn add(&mut self, window: usize, escapes: u64, weight: f64) {
        if self.0.len() <= window {
            self.0.resize(window + 1, Count::default());
        }
        let (count, weighed) = (&mut self.0[window], escapes as f64 * weight);
        count.escapes += escapes;
        count.keys += 1;
        count.weighed += weighed;
        count.squares += weighed * weighed;
    }

    /// The counts of each window, of so many operations each.
    pub(crate) fn counts(&self, operations: &[u64]) -> Vec<Count> {
        let count = |(window, operations): (usize, &u64)| Count {
            operations: *operations,
            ..self.0.get(window).copied().unwrap_or_default()
        };
        operations.iter().enumerate().map(count).collect()
    }
}

/// How many operations judge each window, from how many windows each judges.
pub(crate) fn judged(operations: &[u64], windows: usize) -> Vec<u64> {
    let mut sums = vec![0; windows];
    let mut sum = 0;
    for window in (0..windows).rev() {
        sum += operations.get(window + 1).copied().unwrap_or(0);
        sums[window] = sum;
    }
    sums
}

/// What stands for routes and scopes beyond the limit.
const OTHERS: &str = "(others)";
