//! The one pass over a trace.

use hashbrown::HashTable;
use xxhash_rust::xxh3::Xxh3;

use crate::bytes::Weights;
use crate::distance::Distance;
use crate::groups::{Groups, Sums, judged};
use crate::result::{Anchor, Capacity, Measured, Tally, Window};
use crate::runs::{Run, arrive, bits};
use crate::sweep::{Sweep, memories};
use crate::{Grid, GridError, Wrong};

/// One request, as a trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// When it came, in microseconds since 1970.
    pub time: i64,
    /// Its key.
    pub key: &'a str,
    /// Bytes of the recorded outcome. Zero for none: then those of its key's last are taken.
    pub size: u32,
    /// The route that it came on.
    pub route: &'a str,
    /// The scope that its key belongs to. Two scopes never share a key.
    pub scope: &'a str,
    /// How long the handler took, in microseconds; zero when it did not run, which is the cautious side: its window ends earlier.
    pub took: i64,
}

/// Which keys are looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample(f64);

impl Sample {
    /// All keys.
    pub const ALL: Self = Self(1.0);

    /// This share of the keys, with all arrivals of each. Rates stay as they are, memory and distances are scaled up (SHARDS, FAST '15).
    /// Escapes are rare: see that about a hundred are left.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share <= 1.0).then_some(Self(share))
    }

    /// The share.
    #[must_use]
    pub const fn share(self) -> f64 {
        self.0
    }

    fn takes(self, hash: u64) -> bool {
        self.0 >= 1.0 || (hash as f64) < self.0 * 2f64.powi(64)
    }
}

/// What a pass looks for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The windows. Default: 64 from 1 min to 60 d.
    pub grid: Grid,
    /// The bounds on the number of records. Default: 36 from 100 to 10^8.
    pub capacities: Grid,
    /// How long bodies are kept, in microseconds, where the window is not shorter. Default 24 h.
    pub response: i64,
    /// What records weigh. Default: no store, so that memory is records alone.
    pub weights: Vec<Weights>,
    /// Which keys. Default: all.
    pub sample: Sample,
    /// How many pairs of route and scope have figures of their own. Default 4096, about 15 KiB each where keys come again.
    pub groups: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grid: Grid::default(),
            capacities: capacities().unwrap_or_default(),
            response: 86_400_000_000,
            weights: Vec::new(),
            sample: Sample::ALL,
            groups: 4096,
        }
    }
}

/// From 100 to 10^8, six to a power of ten.
fn capacities() -> Result<Grid, GridError> {
    Grid::of((12..=48).map(|sixths| 10f64.powf(f64::from(sixths) / 6.0).round() as i64).collect())
}

/// Why a pass found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PassError {
    /// No arrivals, or none of a sampled key.
    #[error("no arrival of a key that is looked at: the trace is empty or the sample too small")]
    Empty,
    /// All at one time.
    #[error("all arrivals have the same time, so the trace says nothing about any window")]
    NoLength,
}

/// Takes arrivals in the order of time and judges all windows at once.
///
/// Keeps 47 bytes an arrival, 29 to 40 a key, and about 170 for a key that came again. Keys are told apart by 64 bits of a hash: of 10^7
/// keys, two are taken for one with a probability of 3 in a million.
#[derive(Debug)]
pub struct Pass {
    settings: Settings,
    table: HashTable<u32>,
    keys: Vec<Seen>,
    again: Vec<Again>,
    sweep: Sweep,
    distance: Distance,
    histogram: Vec<u64>,
    groups: Groups,
    refused: u64,
    silence: (i64, i64),
    scratch: Vec<Run>,
}

/// A key.
#[derive(Clone, Copy, Debug)]
struct Seen {
    hash: u64,
    /// Its first and its last arrival.
    first: u32,
    last: u32,
    group: u32,
    /// Where its histories are, or [`ONCE`].
    again: u32,
}

/// The histories of a key under the three anchors, one behind the other.
#[derive(Debug)]
struct Again {
    runs: Box<[Run]>,
    begins: [u8; 2],
}

const ONCE: u32 = u32::MAX;

impl Pass {
    /// A pass that has seen nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            histogram: vec![0; (settings.grid.count() + 1) * (settings.capacities.count() + 1)],
            groups: Groups::new(settings.groups),
            settings,
            table: HashTable::new(),
            keys: Vec::new(),
            again: Vec::new(),
            sweep: Sweep::default(),
            distance: Distance::default(),
            refused: 0,
            silence: (0, 0),
            scratch: Vec::new(),
        }
    }

    /// Takes one arrival. They must come in the order of time.
    ///
    /// # Errors
    /// [`Wrong::OutOfOrder`], and [`Wrong::TooMany`] after 2^32 - 2 arrivals.
    pub fn add(&mut self, arrival: &Arrival<'_>) -> Result<(), Wrong> {
        let &Arrival { time, took, .. } = arrival;
        if let Some(last) = self.sweep.times.last() {
            if time < *last {
                return Err(Wrong::OutOfOrder { by: (last - time) as f64 / 1e6, tolerance: 0.0 });
            }
            self.silence = self.silence.max((time - last, *last));
        }
        if self.sweep.times.len() >= (u32::MAX - 1) as usize {
            return Err(Wrong::TooMany);
        }
        let hash = identity(arrival.scope, arrival.key);
        if !self.settings.sample.takes(hash) {
            return Ok(());
        }
        let completed = time.saturating_add(took);
        let number = self.sweep.times.len() as u32;
        let (keys, spread) = (&self.keys, |hash: u64| hash.rotate_left(32));
        match self.table.find(spread(hash), |key| keys[*key as usize].hash == hash).copied() {
            Some(key) => self.again(key, number, arrival, completed),
            None => {
                let key = self.keys.len() as u32;
                let group = self.groups.place(arrival.route, arrival.scope);
                self.groups.arrival(group);
                self.refused += u64::from(arrival.size == 0 && took == 0);
                self.keys.push(Seen { hash, first: number, last: number, group, again: ONCE });
                let keys = &self.keys;
                self.table.insert_unique(spread(hash), key, |key| spread(keys[*key as usize].hash));
                self.distance.new_key();
                let all = bits(0, self.settings.grid.count() as u8);
                self.sweep.push(time, completed, arrival.size, [all, all], self.settings.grid.count() as u8);
            }
        }
        Ok(())
    }

    /// A key that was seen before.
    fn again(&mut self, key: u32, number: u32, arrival: &Arrival<'_>, completed: i64) {
        let windows = self.settings.grid.bounds();
        let seen = &mut self.keys[key as usize];
        self.groups.arrival(seen.group);
        let last = std::mem::replace(&mut seen.last, number) as usize;

        let end = windows.len() as u8;
        let once = |anchor| [Run { anchor, escapes: 0, end }];
        let (first_time, first_completed) = (self.sweep.times[last], self.sweep.completed[last]);
        let firsts = [once(first_time), once(first_completed), once(first_time)];
        let (before, begins): ([&[Run]; 3], _) = match self.again.get(seen.again as usize) {
            Some(Again { runs, begins }) => {
                let [second, third] = begins.map(usize::from);
                ([&runs[..second], &runs[second..third], &runs[third..]], Some(*begins))
            }
            None => (firsts.each_ref().map(|runs| runs.as_slice()), None),
        };
        let (mut ran, mut ends) = ([0; 3], [0; 3]);
        self.scratch.clear();
        for anchor in Anchor::ALL {
            let i = anchor as usize;
            ran[i] = arrive(before[i], &mut self.scratch, anchor, windows, arrival.time, completed);
            ends[i] = self.scratch.len() as u8;
        }
        let begins_now = [ends[0], ends[1]];
        match begins {
            None => {
                seen.again = self.again.len() as u32;
                self.again.push(Again { runs: self.scratch.as_slice().into(), begins: begins_now });
            }
            Some(_) => {
                let again = &mut self.again[seen.again as usize];
                again.begins = begins_now;
                if again.runs.len() == self.scratch.len() {
                    again.runs.copy_from_slice(&self.scratch);
                } else {
                    again.runs = self.scratch.as_slice().into();
                }
            }
        }

        // Gaps run from arrival to arrival; renewed windows are those that a gap exceeds, and they are the first of the grid.
        let gap = ran[Anchor::Renewed as usize].count_ones() as u8;
        let distance = self.distance.again(key) as f64 / self.settings.sample.0;
        let far = self.settings.capacities.below(distance.round() as i64);
        self.histogram[usize::from(gap) * (self.settings.capacities.count() + 1) + far] += 1;
        self.sweep.after[last] = gap;
        let size = if arrival.size > 0 { arrival.size } else { self.sweep.sizes[last] };
        self.sweep.push(arrival.time, completed, size, [ran[0], ran[1]], gap);
    }

    /// Judges what was seen.
    ///
    /// # Errors
    /// [`PassError`] when there is nothing to be judged.
    pub fn finish(self) -> Result<Measured, PassError> {
        let Self { settings, keys, again, sweep, histogram, mut groups, refused, silence, table, distance, .. } = self;
        drop((table, distance));
        let windows = settings.grid.bounds();
        let (Some(&begin), Some(&end)) = (sweep.times.first(), sweep.times.last()) else {
            return Err(PassError::Empty);
        };
        if begin == end {
            return Err(PassError::NoLength);
        }

        // Keys are in the order of their first arrivals, so those first seen in a time are neighbours.
        let before = |time: i64| keys.partition_point(|seen| sweep.times[seen.first as usize] < time);
        let cohorts: Vec<_> = windows.iter().map(|window| (before(begin + window), before(end - window + 1))).collect();
        let (mut all, mut cohort): ([Sums; 3], [Sums; 3]) = Default::default();
        let mut operations = vec![0; windows.len() + 1];
        for seen in &keys {
            let first = sweep.times[seen.first as usize];
            let room = (first - begin).min(end - first);
            let judges = windows.partition_point(|window| *window <= room);
            operations[judges] += 1;
            groups.operation(seen.group, judges, windows.len());
            let Some(Again { runs, begins }) = again.get(seen.again as usize) else { continue };
            // The keys that came early enough to be seen for as long as this one was.
            let span = sweep.times[seen.last as usize] - first;
            let roomy = before(end - span + 1);
            let weight = |(from, to): (usize, usize)| (to - from) as f64 / (roomy.min(to) - from) as f64;
            let [second, third] = begins.map(usize::from);
            for (anchor, runs) in [&runs[..second], &runs[second..third], &runs[third..]].into_iter().enumerate() {
                let mut window = 0;
                for run in runs {
                    let (next, escapes) = (usize::from(run.end), u64::from(run.escapes));
                    for window in (window..next).filter(|_| escapes > 0) {
                        let [group_all, group_cohort] = groups.sums(seen.group);
                        all[anchor].add(window, escapes, 1.0);
                        group_all[anchor].add(window, escapes, 1.0);
                        if window < judges {
                            let weight = weight(cohorts[window]);
                            cohort[anchor].add(window, escapes, weight);
                            group_cohort[anchor].add(window, escapes, weight);
                        }
                    }
                    window = next;
                }
            }
        }
        let number = keys.len() as u64;
        let arrivals = sweep.times.len() as u64;
        drop((keys, again));

        let mut memories = memories(sweep, &settings);
        let (all, cohort) = (
            all.map(|sums| sums.counts(&vec![number; windows.len()])),
            cohort.map(|sums| sums.counts(&judged(&operations, windows.len()))),
        );
        let windows = windows.iter().enumerate().map(|(i, length)| {
            let tally = |anchor: Anchor| {
                let anchor = anchor as usize;
                Tally { all: all[anchor][i], judged: cohort[anchor][i], memory: memories[anchor][i].take() }
            };
            Window { length: *length, tallies: Anchor::ALL.map(tally) }
        });
        Ok(Measured {
            arrivals,
            operations: number,
            span: (begin, end),
            refused,
            silence,
            sample: settings.sample.0,
            response: settings.response,
            stores: settings.weights.iter().map(|weights| weights.store.clone()).collect(),
            windows: windows.collect(),
            groups: groups.finish(settings.grid.count()),
            capacity: Capacity { capacities: settings.capacities, histogram },
        })
    }
}

/// A key in its scope.
pub(crate) fn identity(scope: &str, key: &str) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&(scope.len() as u64).to_le_bytes());
    hash.update(scope.as_bytes());
    hash.update(key.as_bytes());
    hash.digest()
}
