//! The smallest window that is enough.

use std::collections::BTreeMap;

use crate::result::{Anchor, Count, Group, Measured};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// At most so many double runs per operation. Default one in a million: what a trace of some millions of operations can show at all, since none
    /// seen in n operations shows no less than 3.69/n.
    pub rate: f64,
    /// At most so many bytes at the worst moment. Default: any number.
    pub memory: Option<u64>,
    /// What windows count from. Default: completion, as in this project.
    pub anchor: Anchor,
}

impl Default for Target {
    fn default() -> Self {
        Self { rate: 1e-6, memory: None, anchor: Anchor::Completion }
    }
}

/// What a set of operations needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This window of the grid: the upper bound of its rate is within the target.
    Shown(usize),
    /// This window, as far as was seen: there are too few operations to show it.
    Seen(usize),
    /// More than any window that is judged.
    Longer,
    /// No window is judged.
    Unknown,
}

impl Need {
    /// What the counts of each judged window, of the keys that judge it and of all keys, need to be within `rate`. Of all keys too, since what
    /// is so late that only the earliest keys show it is seen of none that judges the window.
    #[must_use]
    pub fn of(judged: &[Count], all: &[Count], rate: f64) -> Self {
        if judged.is_empty() {
            return Self::Unknown;
        }
        let first = |within: &dyn Fn(&Count) -> bool| {
            judged.iter().zip(all).position(|(one, other)| within(one) && within(other))
        };
        // The bound is above the rate itself, and takes long to be found.
        let within = |count: &Count| count.weighed <= rate * count.operations as f64;
        // Where nothing judges a window the bound is not a number.
        let shown = first(&|count| within(count) && count.rate().high <= rate);
        let seen = || first(&within);
        shown.map(Self::Shown).or_else(|| seen().map(Self::Seen)).unwrap_or(Self::Longer)
    }

    /// The window, where there is one.
    #[must_use]
    pub const fn window(self) -> Option<usize> {
        match self {
            Self::Shown(window) | Self::Seen(window) => Some(window),
            Self::Longer | Self::Unknown => None,
        }
    }
}

/// What was found for one anchor.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The anchor.
    pub anchor: Anchor,
    /// What all operations together need.
    pub together: Need,
    /// What each route needs, each scope, and each scope's part of a route where it needs more than both; the largest need first. The
    /// names are `route X`, `scope Y`, `route X, scope Y`.
    pub parts: Vec<(String, Need)>,
    /// The largest need of all, shown or only seen. `None` when somebody needs longer than any judged window.
    pub largest: Option<usize>,
    /// The largest need of all, which decides. `None` when somebody needs longer than any judged window, or when all together
    /// are too few to show that it is enough.
    pub window: Option<usize>,
}

impl Advice {
    /// What `measured` says about windows that count from `anchor`.
    #[must_use]
    pub fn of(measured: &Measured, anchor: Anchor, rate: f64) -> Self {
        let judged = measured.judged().len();
        let windows = || measured.judged().iter().map(|window| window.of(anchor));
        let (cohort, all): (Vec<_>, Vec<_>) = windows().map(|tally| (tally.judged, tally.all)).unzip();
        let together = Need::of(&cohort, &all, rate);
        let need = |group: &Group| {
            let [counts, all] = [&group.counts, &group.all].map(|counts| &counts[anchor as usize][..judged]);
            Need::of(counts, all, rate)
        };
        let needs = |groups: BTreeMap<String, Group>| -> BTreeMap<String, Need> {
            groups.into_iter().map(|(name, group)| (name, need(&group))).collect()
        };
        let route = |group: &Group| format!("route {}", shown(&group.route));
        let scope = |group: &Group| format!("scope {}", shown(&group.scope));
        let (routes, scopes) = (needs(measured.by(route)), needs(measured.by(scope)));
        let place = |need: &Need| need.window().unwrap_or(usize::MAX);
        let pairs = measured.groups.iter().filter_map(|group| {
            let (route, scope, need) = (route(group), scope(group), need(group));
            let more = place(&need) > place(&routes[&route]).max(place(&scopes[&scope]));
            more.then(|| (format!("{route}, {scope}"), need))
        });
        let pairs: Vec<_> = pairs.collect();
        let mut parts: Vec<_> = routes.into_iter().chain(scopes).chain(pairs).collect();
        parts.sort_by_key(|(_, need)| std::cmp::Reverse(place(need)));
        let largest = parts.iter().map(|(_, need)| place(need)).chain([place(&together)]).max();
        let largest = largest.filter(|window| *window < judged);
        let window = largest.filter(|_| matches!(together, Need::Shown(_)));
        // Whether all together show it was asked for their own need. The largest need is for no shorter a window, whose
        // upper bound may be larger only because fewer operations judge it.
        Self { anchor, together, parts, largest, window }
    }

    /// The parts whose need is the largest.
    pub fn deciding(&self) -> impl Iterator<Item = &str> {
        let largest = self.parts.first().map(|(_, need)| need.window());
        let deciding = self.parts.iter().take_while(move |(_, need)| Some(need.window()) == largest);
        deciding.map(|(name, _)| name.as_str())
    }
}

/// The longest judged window that fits into `bytes` in store number `store`.
#[must_use]
pub fn longest_that_fits(measured: &Measured, anchor: Anchor, store: usize, bytes: u64) -> Option<usize> {
    let fits = |window: &crate::Window| {
        window.of(anchor).memory.as_ref().is_some_and(|memory| memory.peak_bytes[store] <= bytes as f64)
    };
    measured.judged().iter().rposition(fits)
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "(none)" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(operations: u64, escapes: &[u64]) -> Vec<Count> {
        let count = |escapes: &u64| {
            let weighed = *escapes as f64;
            Count { operations, escapes: *escapes, keys: *escapes, weighed, squares: weighed }
        };
        escapes.iter().map(count).collect()
    }

    /// What is needed where all keys judge.
    fn need(counts: &[Count]) -> Need {
        Need::of(counts, counts, 1e-6)
    }

    #[test]
    fn the_upper_bound_decides_and_few_operations_show_nothing() {
        assert_eq!(need(&counts(10_000_000, &[900, 30, 4, 0])), Need::Shown(3));
        assert_eq!(need(&counts(20_000_000, &[900, 30, 4, 0])), Need::Shown(2));
        assert_eq!(need(&counts(1000, &[9, 3, 0, 0])), Need::Seen(2));
        assert_eq!(need(&counts(1000, &[9, 3, 2, 1])), Need::Longer);
        assert_eq!(need(&[]), Need::Unknown);
    }

    #[test]
    fn what_no_key_judges_is_not_shown_and_what_any_key_did_counts() {
        let (none, some) = (counts(0, &[0, 0]), counts(10_000_000, &[30, 0]));
        assert_eq!(Need::of(&none, &some, 1e-6), Need::Seen(1));
        let (judged, all) = (counts(10_000_000, &[0, 0]), counts(10_000_000, &[30, 0]));
        assert_eq!(Need::of(&judged, &all, 1e-6), Need::Shown(1));
        assert_eq!(Need::of(&judged, &counts(10_000_000, &[30, 30]), 1e-6), Need::Longer);
    }

    #[test]
    fn escapes_of_one_key_are_one_piece_of_evidence() {
        let apart = Count { operations: 1_000_000, escapes: 100, keys: 100, weighed: 100.0, squares: 100.0 };
        let together = Count { keys: 1, squares: 10_000.0, ..apart };
        assert!(apart.rate().high < 1.3e-4);
        // One cluster seen: as few as 0.03 and as many as 5.6 of them.
        assert!((5.5e-4..5.6e-4).contains(&together.rate().high), "{:?}", together.rate());
    }
}
