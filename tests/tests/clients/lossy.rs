//! What the link does to the requests and replies of one run, drawn by a seed.

use std::collections::BTreeMap;

use idempotency_testbed::{Fate, Proxy, Rule};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

/// What can happen to a request, or to its reply. What is late arrives when the client has, or has not, given up on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    RequestReset,
    RequestLost,
    RequestLate,
    ReplyReset,
    ReplyLost,
    ReplyLate,
    ReplyCutOff,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::RequestReset,
        Self::RequestLost,
        Self::RequestLate,
        Self::ReplyReset,
        Self::ReplyLost,
        Self::ReplyLate,
        Self::ReplyCutOff,
    ];

    /// The request was carried out, and its client may never have learned of it.
    const fn is_of_reply(self) -> bool {
        matches!(self, Self::ReplyReset | Self::ReplyLost | Self::ReplyLate | Self::ReplyCutOff)
    }

    fn of_nth(self, proxy: &Proxy, nth: usize) -> Rule {
        match self {
            Self::RequestReset => proxy.on_request(REQUEST, nth, Fate::Reset),
            Self::RequestLost => proxy.on_request(REQUEST, nth, Fate::Silence),
            Self::RequestLate => proxy.on_request(REQUEST, nth, Fate::Hold),
            Self::ReplyReset => proxy.on_reply_to(REQUEST, nth, Fate::Reset),
            Self::ReplyLost => proxy.on_reply_to(REQUEST, nth, Fate::Silence),
            Self::ReplyLate => proxy.on_reply_to(REQUEST, nth, Fate::Hold),
            Self::ReplyCutOff => proxy.on_reply(WITHIN_REPLY, nth, Fate::Reset),
        }
    }
}

/// How the request of a payment begins.
pub(crate) const REQUEST: &str = "POST /";
/// In the body of an answer.
const WITHIN_REPLY: &str = "\"amount\"";
/// How many requests of a hundred something happens to.
const RATE: u32 = 50;

/// The faults of one run.
pub(crate) struct Faults(Vec<(Fault, Rule)>);

impl Faults {
    /// Draws what happens to the next so many requests.
    pub(crate) fn draw(proxy: &Proxy, seed: u64, requests: usize) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let hit: Vec<usize> = (1..=requests).filter(|_| dice.random_range(0..100) < RATE).collect();
        let fate = |nth| {
            // Mostly to replies: what was not carried out cannot be carried out twice.
            let fault =
                *Fault::ALL.choose_weighted(&mut dice, |fault| if fault.is_of_reply() { 3 } else { 2 }).unwrap();
            (fault, fault.of_nth(proxy, nth))
        };
        Self(hit.into_iter().map(fate).collect())
    }

    /// Those that came to pass, by kind.
    pub(crate) fn fired(&self) -> BTreeMap<Fault, usize> {
        let mut fired = BTreeMap::new();
        for (fault, _) in self.0.iter().filter(|(_, rule)| rule.has_fired()) {
            *fired.entry(*fault).or_default() += 1;
        }
        fired
    }

    /// How many replies were lost or late.
    pub(crate) fn of_replies(&self) -> usize {
        self.fired().iter().filter(|(fault, _)| fault.is_of_reply()).map(|(_, times)| times).sum()
    }
}
