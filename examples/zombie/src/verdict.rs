//! What an act has shown, counted from the data it left.

use std::fmt;
use std::time::Duration;

use crate::act::Act;
use crate::database::{Facts, OPENING_BALANCE, PRICE};
use crate::evidence;
use crate::timeline::Timeline;

/// What the data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An invoice was charged more than once.
    ChargedTwice,
    /// The invoice was charged once.
    ChargedOnce,
    /// The invoice was not charged.
    NotCharged,
    /// The balance lacks something that was accepted.
    UpdateLost,
    /// The balance is the sum of what was accepted.
    SumRight,
}

impl Verdict {
    pub(crate) const fn is_right(self) -> bool {
        matches!(self, Self::ChargedOnce | Self::SumRight)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ChargedTwice => "CHARGED TWICE",
            Self::ChargedOnce => "charged once",
            Self::NotCharged => "NOT CHARGED",
            Self::UpdateLost => "UPDATE LOST",
            Self::SumRight => "nothing lost",
        })
    }
}

/// What was found after an act.
#[derive(Debug)]
pub(crate) struct Finding {
    /// What is in the data.
    pub(crate) found: String,
    /// What should be there.
    pub(crate) should_be: String,
    pub(crate) verdict: Verdict,
    /// What the act was to show and did not.
    pub(crate) missing: Vec<&'static str>,
}

impl Finding {
    pub(crate) fn of(act: Act, facts: &Facts, timeline: &Timeline, lease: Duration) -> Self {
        let (found, should_be, verdict) = if act.is_charge() { charges(facts) } else { deposits(facts) };
        let mut missing = evidence::missing(act, timeline, lease);
        if verdict != act.must_show() {
            missing.push("another outcome");
        }
        Self { found, should_be, verdict, missing }
    }

    pub(crate) const fn is_as_it_must(&self) -> bool {
        self.missing.is_empty()
    }
}

fn charges(facts: &Facts) -> (String, String, Verdict) {
    let verdict = match facts.entries.len() {
        0 => Verdict::NotCharged,
        1 => Verdict::ChargedOnce,
        _ => Verdict::ChargedTwice,
    };
    let number = facts.entries.len();
    let charges = if number == 1 { "charge" } else { "charges" };
    let found = format!("{number} {charges}, balance {}", facts.balance);
    (found, format!("1 charge, balance {}", OPENING_BALANCE - PRICE), verdict)
}

fn deposits(facts: &Facts) -> (String, String, Verdict) {
    let verdict = if facts.balance == facts.sum() { Verdict::SumRight } else { Verdict::UpdateLost };
    let amounts: Vec<_> = facts.entries.iter().map(|(who, amount)| format!("{who} +{amount}")).collect();
    let found = format!("{}, balance {}", amounts.join(", "), facts.balance);
    (found, format!("balance {}", facts.sum()), verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_without_its_events_has_not_shown_what_it_must() {
        let timeline = Timeline::of([Vec::new(), Vec::new()]);
        for act in Act::ALL {
            let facts = Facts { balance: OPENING_BALANCE, entries: Vec::new() };
            assert!(!Finding::of(act, &facts, &timeline, Duration::ZERO).is_as_it_must(), "{act:?}");
        }
    }

    #[test]
    fn the_verdict_is_counted_from_the_data() {
        let facts = |balance, entries: &[(&str, i64)]| Facts {
            balance,
            entries: entries.iter().map(|(who, amount)| ((*who).to_owned(), *amount)).collect(),
        };
        assert_eq!(charges(&facts(100, &[])).2, Verdict::NotCharged);
        assert_eq!(charges(&facts(70, &[("B", -30)])).2, Verdict::ChargedOnce);
        assert_eq!(charges(&facts(40, &[("B", -30), ("A", -30)])).2, Verdict::ChargedTwice);
        assert_eq!(deposits(&facts(107, &[("A", 5), ("B", 7)])).2, Verdict::UpdateLost);
        assert_eq!(deposits(&facts(112, &[("B", 7), ("A", 5)])).2, Verdict::SumRight);
    }
}
