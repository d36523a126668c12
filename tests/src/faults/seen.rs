//! What a run has seen, and whether that is enough to prove anything.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::history::{Effect, Event, History, Kind};
use super::nemesis::{LOST_COMMIT, LOST_REPLY};

/// What a run has seen, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Faults by whom and what.
    pub injected: BTreeMap<String, usize>,
    /// Requests.
    pub requests: usize,
    /// Answers by status and problem.
    pub answers: BTreeMap<String, usize>,
    /// Requests without a whole answer.
    pub unanswered: usize,
    /// Keys, by kind.
    pub keys: BTreeMap<String, usize>,
    /// Effects.
    pub effects: usize,
    /// Effects of later attempts under `Rerun`, which may be.
    pub reruns: usize,
    /// Second effects under `Hold`, which may be where the store forgot the first.
    pub forgotten: usize,
    /// Answers that said "superseded".
    pub superseded: usize,
    /// Replies that were lost after their effect or commit.
    pub lost: usize,
    /// Holders who believed in a lease that another had been given: of leases that testbeds took.
    pub overlaps_of_testbeds: usize,
    /// The same, of leases that clients took.
    pub overlaps_of_clients: usize,
    /// The longest time that a key was still unanswered after the last fault, in milliseconds.
    pub slowest: u64,
}

impl Seen {
    /// Counts.
    #[must_use]
    pub fn new(events: &[Event], history: &History<'_>) -> Self {
        let mut seen = Self { effects: history.effects.len(), ..Self::default() };
        for struck in &history.struck {
            let whom = struck.whom.trim_end_matches(|last: char| last.is_ascii_digit()).trim_end();
            *seen.injected.entry(format!("{whom}: {}", struck.what)).or_default() += 1;
            seen.lost += usize::from(struck.what == LOST_REPLY || struck.what == LOST_COMMIT);
        }
        for event in events {
            match event {
                Event::Sent(_) => seen.requests += 1,
                Event::Unanswered { .. } => seen.unanswered += 1,
                Event::Answered(answered) => {
                    let replayed = if answered.replayed { " replayed" } else { "" };
                    let problem = answered.problem.as_deref().map(|problem| format!(" {problem}")).unwrap_or_default();
                    *seen.answers.entry(format!("{}{problem}{replayed}", answered.status)).or_default() += 1;
                    seen.superseded += usize::from(answered.is("fencing-token-superseded"));
                }
                _ => {}
            }
        }
        for story in history.keys.values() {
            let Some(first) = story.first() else { continue };
            *seen.keys.entry(format!("{:?}", first.kind).to_lowercase()).or_default() += 1;
            let more = story.effects.len().saturating_sub(1);
            match first.kind {
                Kind::Rerun => seen.reruns += more,
                Kind::Hold => seen.forgotten += more,
                _ => {}
            }
            let last = story.answers().map(|(_, answered)| answered).find(|answered| answered.is_final(first.kind));
            if let (Some(last), Some(calm)) = (last, history.calm.filter(|calm| first.at < *calm)) {
                seen.slowest = seen.slowest.max(last.at.saturating_sub(calm) / 1000);
            }
        }
        (seen.overlaps_of_testbeds, seen.overlaps_of_clients) = overlaps(history);
        seen
    }

    /// What was seen, in words.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("requests", self.requests),
            ("without an answer", self.unanswered),
            ("effects", self.effects),
            ("effects of later attempts under rerun", self.reruns),
            ("second effects under hold", self.forgotten),
            ("replies lost after the effect or commit", self.lost),
            ("superseded", self.superseded),
            ("overlaps of holders, leases of testbeds", self.overlaps_of_testbeds),
            ("overlaps of holders, leases of clients", self.overlaps_of_clients),
            (
                "ms until the last key was answered, from the end of the faults",
                usize::try_from(self.slowest).unwrap_or(usize::MAX),
            ),
        ]
    }

    /// Holders who believed in a lease that another had been given.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.overlaps_of_testbeds + self.overlaps_of_clients
    }
}

/// Of a lease that a testbed took: whoever was told that a newer token had been there, and whoever wrote after a newer token was made (a token
/// is the time of its grant). Of one that a client took: whoever presented a token after a newer one was given out.
fn overlaps(history: &History<'_>) -> (usize, usize) {
    let (mut testbeds, mut clients) = (0, 0);
    for story in history.keys.values() {
        for exchange in &story.exchanges {
            let (sent, resource) = (exchange.sent, exchange.sent.resource.as_deref());
            let refused = exchange.answered.is_some_and(|answered| answered.is("fencing-token-superseded"));
            match sent.token {
                None => testbeds += usize::from(refused && sent.kind == Kind::Counter),
                Some(mine) => {
                    let newer =
                        |grant: &&(&str, u64, u64)| Some(grant.0) == resource && grant.1 > mine && grant.2 < sent.at;
                    clients += usize::from(history.grants.iter().rev().any(|grant| newer(&grant)));
                }
            }
        }
    }
    // Of a clock that was set, a token does not tell when it was made.
    if history.clock_stepped() {
        return (testbeds, clients);
    }
    let of_counters = history.effects.iter().filter(|effect| effect.route.starts_with("/counter"));
    let mut by_counter = BTreeMap::<&str, Vec<_>>::new();
    for effect in of_counters {
        by_counter.entry(effect.resource.as_deref().unwrap_or_default()).or_default().push(effect);
    }
    for effects in by_counter.values() {
        let late = |two: &&[&&Effect]| two[1].token.is_some_and(|newer| newer / 1000 < two[0].at);
        testbeds += effects.windows(2).filter(|two| late(two)).count();
    }
    (testbeds, clients)
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &BTreeMap<String, usize>| {
            counts.iter().map(|(what, count)| format!("  {count:>6}  {what}\n")).collect::<String>()
        };
        write!(f, "injected\n{}", list(&self.injected))?;
        write!(f, "keys\n{}", list(&self.keys))?;
        write!(f, "answers\n{}", list(&self.answers))?;
        writeln!(f, "seen")?;
        self.counts().iter().try_for_each(|(what, count)| writeln!(f, "  {count:>6}  {what}"))
    }
}

/// How much a run must see to prove something: written `OVERLAPS,SUPERSEDED,LOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minimum {
    /// Holders who believed in a lease that another had been given.
    pub overlaps: usize,
    /// Answers that say "superseded".
    pub superseded: usize,
    /// Replies that were lost after their effect or commit.
    pub lost: usize,
}

impl Default for Minimum {
    /// 20, 20 and 100.
    fn default() -> Self {
        Self { overlaps: 20, superseded: 20, lost: 100 }
    }
}

impl Minimum {
    /// What is missing.
    #[must_use]
    pub fn missing(&self, seen: &Seen) -> Vec<String> {
        let wanted = [
            ("overlaps of holders", seen.overlaps(), self.overlaps),
            ("superseded answers", seen.superseded, self.superseded),
            ("lost replies", seen.lost, self.lost),
        ];
        let short = wanted.into_iter().filter(|(_, seen, least)| seen < least);
        let mut missing: Vec<String> = short
            .map(|(what, seen, least)| format!("{seen} {what} of at least {least}: this proves nothing"))
            .collect();
        let full = seen.injected.get(FULL).copied().unwrap_or(0);
        if full >= FULL_ENOUGH && !seen.answers.contains_key(REFUSED_AS_FULL) {
            missing.push(format!("full {full} times, and nothing was refused for it: this proves nothing"));
        }
        missing
    }
}

/// A store without room, as a fault and as an answer.
const FULL: &str = "memory: full";
const REFUSED_AS_FULL: &str = "503 store-full";
/// So often that somebody must have asked meanwhile.
const FULL_ENOUGH: usize = 6;

impl FromStr for Minimum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<usize>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        match numbers.as_deref() {
            Some([overlaps, superseded, lost]) => {
                Ok(Self { overlaps: *overlaps, superseded: *superseded, lost: *lost })
            }
            _ => Err("write three numbers, such as 20,20,100".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_saw_too_little_of_anything_proves_nothing() {
        let enough =
            Seen { overlaps_of_testbeds: 12, overlaps_of_clients: 8, superseded: 20, lost: 100, ..Seen::default() };
        assert_eq!(Minimum::default().missing(&enough), Vec::<String>::new());
        for short in [
            Seen { overlaps_of_testbeds: 11, ..enough.clone() },
            Seen { superseded: 19, ..enough.clone() },
            Seen { lost: 99, ..enough },
        ] {
            assert_eq!(Minimum::default().missing(&short).len(), 1, "{short:?}");
        }
    }

    #[test]
    fn a_store_that_was_full_must_have_refused_something() {
        let minimum = Minimum { overlaps: 0, superseded: 0, lost: 0 };
        let mut seen = Seen { injected: [(FULL.to_owned(), FULL_ENOUGH)].into(), ..Seen::default() };
        assert_eq!(minimum.missing(&seen).len(), 1);
        seen.answers.insert(REFUSED_AS_FULL.to_owned(), 1);
        assert_eq!(minimum.missing(&seen), Vec::<String>::new());
    }

    #[test]
    fn a_minimum_is_three_numbers() {
        assert_eq!("20,20,100".parse(), Ok(Minimum::default()));
        assert!("20,20".parse::<Minimum>().is_err() && "a,b,c".parse::<Minimum>().is_err());
    }
}
