//! What a pass found.

use std::collections::BTreeMap;

use crate::{Grid, bounds};

/// What a window counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Anchor {
    /// The arrival that ran.
    Arrival,
    /// The completion of the arrival that ran. What is in flight is not forgotten, however short the window.
    Completion,
    /// The arrival that came last: every hit renews the record. Only the tombstone is renewed, not the body.
    Renewed,
}

impl Anchor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Arrival, Self::Completion, Self::Renewed];

    /// Its name in tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Completion => "completion",
            Self::Renewed => "renewed",
        }
    }
}

/// Everything that one pass found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How many arrivals there were; of the sampled keys, when keys were sampled.
    pub arrivals: u64,
    /// How many different keys.
    pub operations: u64,
    /// The first and the last time, in microseconds since 1970.
    pub span: (i64, i64),
    /// How many keys came first in an arrival that neither took time nor recorded anything. As a rule it was refused and ran nothing, yet it counts
    /// as the first run of its key.
    pub refused: u64,
    /// The longest time without an arrival: how long, and since when, in microseconds.
    pub silence: (i64, i64),
    /// The share of keys that were looked at.
    pub sample: f64,
    /// How long the body of an outcome is kept, in microseconds, where the window is not shorter.
    pub response: i64,
    /// The names of the stores that bytes are given for.
    pub stores: Vec<String>,
    /// One for each window of the grid.
    pub windows: Vec<Window>,
    /// One for each pair of route and scope.
    pub groups: Vec<Group>,
    /// What a bound on the number of records costs.
    pub capacity: Capacity,
}

/// One window.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its length in microseconds.
    pub length: i64,
    /// By anchor, in the order of [`Anchor::ALL`].
    pub tallies: [Tally; 3],
}

impl Window {
    /// What was found for this anchor.
    #[must_use]
    pub const fn of(&self, anchor: Anchor) -> &Tally {
        &self.tallies[anchor as usize]
    }

    /// Whether the trace is long enough to say something about it: three times its length.
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        self.tallies[0].memory.is_some()
    }
}

/// What one window costs.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Of all keys, as they were seen.
    pub all: Count,
    /// Of the keys that were first seen at least the window's length after the begin of the trace, and before its end. A key
    /// that comes earlier may be a duplicate of one before the trace, and what follows one that comes later is not seen.
    ///
    /// What comes later than the window after its key's first arrival is seen of the earlier of these keys alone. So a key
    /// that was seen to come again, over the time S from its first arrival to its last, stands for more than itself: for as
    /// many keys as there are here for each that has room for S before the end of the trace (the inverse of the probability
    /// that it is seen). A key whose last arrivals are hits stands for a little more than it should: that is the cautious side.
    pub judged: Count,
    /// Not for windows that are not judged.
    pub memory: Option<Memory>,
}

/// How often keys ran again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// How many keys were counted.
    pub operations: u64,
    /// How many arrivals ran although their key had run.
    pub escapes: u64,
    /// How many keys ran more than once.
    pub keys: u64,
    /// The sum over keys of their escapes, each times as many keys as it stands for.
    pub weighed: f64,
    /// The sum of the squares of the same.
    pub squares: f64,
}

impl Count {
    /// Double runs per operation, with the bounds of its 95% confidence interval ([`bounds::poisson`]).
    ///
    /// Escapes of one key come together, so a Poisson law of single escapes would be too sure of itself: it is widened by the mean
    /// number of escapes that an escape has beside it in its key and in those that it stands for.
    #[must_use]
    pub fn rate(&self) -> Rate {
        let per = |escapes: f64| if self.operations == 0 { f64::NAN } else { escapes / self.operations as f64 };
        let cluster = if self.escapes == 0 { 1.0 } else { self.squares / self.weighed };
        let (low, high) = bounds::poisson(self.weighed / cluster);
        Rate { rate: per(self.weighed), low: per(low * cluster), high: per(high * cluster) }
    }

    fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            escapes: self.escapes + other.escapes,
            keys: self.keys + other.keys,
            weighed: self.weighed + other.weighed,
            squares: self.squares + other.squares,
        }
    }
}

/// A rate per operation, and what it may be. Not a number where there were no operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// As counted.
    pub rate: f64,
    /// It is hardly less.
    pub low: f64,
    /// It is hardly more.
    pub high: f64,
}

/// What is held under one window. Scaled up when keys were sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Live records, on average over the trace.
    pub mean_records: f64,
    /// Live records at the worst moment.
    pub peak_records: f64,
    /// Bytes in each store, on average.
    pub mean_bytes: Vec<f64>,
    /// Bytes in each store at its worst moment.
    pub peak_bytes: Vec<f64>,
}

/// Figures of one route and scope.
#[derive(Clone, Debug)]
pub struct Group {
    /// The route that its keys came on first.
    pub route: String,
    /// The scope that its keys belong to.
    pub scope: String,
    /// How many arrivals.
    pub arrivals: u64,
    /// Of all its keys, by anchor and window.
    pub all: [Vec<Count>; 3],
    /// What is judged, by anchor and window. Weighed as all keys are together.
    pub counts: [Vec<Count>; 3],
}

impl Measured {
    /// How long the trace is, in microseconds.
    #[must_use]
    pub const fn length(&self) -> i64 {
        self.span.1 - self.span.0
    }

    /// The windows that the trace is long enough for.
    #[must_use]
    pub fn judged(&self) -> &[Window] {
        let judged = self.windows.iter().take_while(|window| window.is_judged()).count();
        &self.windows[..judged]
    }

    /// Figures by what `name` makes of a group, such as its route.
    #[must_use]
    pub fn by(&self, name: impl Fn(&Group) -> String) -> BTreeMap<String, Group> {
        let mut sums: BTreeMap<String, Group> = BTreeMap::new();
        for group in &self.groups {
            let Some(sum) = sums.get_mut(&name(group)) else {
                sums.insert(name(group), group.clone());
                continue;
            };
            sum.arrivals += group.arrivals;
            let both = sum.all.iter_mut().zip(&group.all).chain(sum.counts.iter_mut().zip(&group.counts));
            for (sums, counts) in both {
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.and(*count));
            }
        }
        sums
    }
}

/// A bound on the number of records: when it is full, the one that was used the longest ago goes. (The stores of this project do not do
/// that: they refuse. It is here to be compared with, and as what a cache with such a bound would do.)
#[derive(Clone, Debug)]
pub struct Capacity {
    /// The numbers of records.
    pub capacities: Grid,
    /// Arrivals by how many windows their gap exceeds, and how many capacities their distance.
    pub(crate) histogram: Vec<u64>,
}

impl Capacity {
    /// How many arrivals run again when records are renewed by hits, live for window number `window` of the grid and are at most as many
    /// as capacity number `capacity`.
    #[must_use]
    pub fn escapes(&self, window: usize, capacity: usize) -> u64 {
        let width = self.capacities.count() + 1;
        let rows = self.histogram.chunks(width).enumerate();
        rows.map(|(gap, row)| {
            let from = if gap > window { 0 } else { capacity + 1 };
            row[from..].iter().sum::<u64>()
        })
        .sum()
    }
}
