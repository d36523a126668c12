//! What must hold of a history, whatever was injected. Each check is a function of the history alone, so that a history that is left by a
//! run can be judged again, and each can fail: see the tests, which feed them bad ones.
//!
//! invariant | what a client and the ledger can see of it
//! --- | ---
//! I1 | attempts of one key, and leases of one counter, have tokens of their own, and they grow
//! I2 | a counter's effects have rising tokens: no superseded write is among them
//! I3 | a counter is the sum of its effects, and every acknowledgement shows the sum as it was then: no update is lost
//! I4 | whoever was told "superseded" was: a newer token had been given out
//! I5 | one effect per key, one answer per key, an effect for every acknowledgement, none for a key that is used for another request
//! I7 | when all faults are over, every key is answered in time
//! I10 | when nobody is at work, no transaction stands open
//! honesty | every refusal is one of the documented ones
//!
//! I6 (an external API that knows no keys) is judged by the tests of `/payout`, I8 (teeth) by [`Seen`](super::Seen). I9 (a holder learns
//! of its loss after a pause) shows in I2 and in the number of superseded answers.

mod answers;
mod counters;
mod effects;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use super::history::History;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant is broken.
    pub invariant: &'static str,
    /// By what: a key or a counter.
    pub subject: String,
    /// How.
    pub what: String,
}

impl Violation {
    fn new(invariant: &'static str, subject: &str, what: impl Into<String>) -> Self {
        Self { invariant, subject: subject.to_owned(), what: what.into() }
    }

    /// Whether something happened twice that was asked for once.
    #[must_use]
    pub fn is_double_effect(&self) -> bool {
        self.invariant == ONE_EFFECT
    }

    /// Whether somebody wrote over what another had written.
    #[must_use]
    pub fn is_lost_update(&self) -> bool {
        self.invariant == NO_LOST_UPDATE
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken by {}: {}", self.invariant, self.subject, self.what)
    }
}

/// Everything that must not be. After the last fault a key is to be answered within `patience`.
#[must_use]
pub fn check(history: &History<'_>, patience: Duration) -> Vec<Violation> {
    let of_keys = history.keys.iter().flat_map(|(key, story)| {
        let mut found = effects::of_key(history, key, story);
        found.extend(answers::of_key(history, key, story, patience));
        found
    });
    let mut found: Vec<Violation> = of_keys.collect();
    found.extend(counters::of_all(history));
    if history.open_transactions > 0 {
        let what = format!("{} transactions stand open", history.open_transactions);
        found.push(Violation::new(IDLE, "the store", what));
    }
    found
}

const TOKENS_GROW: &str = "I1 tokens grow";
const IN_ORDER: &str = "I2 no superseded write";
const NO_LOST_UPDATE: &str = "I3 no lost update";
const JUSTIFIED: &str = "I4 superseded by somebody";
const ONE_EFFECT: &str = "I5 one effect";
const ONE_ANSWER: &str = "I5 one answer";
const ACKNOWLEDGED: &str = "I5 acknowledged is done";
const NOT_REUSED: &str = "I5 one request per key";
const LIVE: &str = "I7 answered in time";
const IDLE: &str = "I10 no open transaction";
const HONEST: &str = "honesty";
