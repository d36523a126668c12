//! Traces made up from kinds of clients.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, LogNormal};

use crate::presets::Preset;
use crate::schedule::StopOnSuccess;
use crate::{Arrival, HEADER, Wrong};

/// What a made-up trace is like.
///
/// Operations begin at random times, as many in a second as `rate` says. Each belongs to one of the clients, which is its route, and to one of
/// the scopes. Every attempt that reaches the service claims, so it is an arrival; then its answer is lost or not. An answer is lost
/// more often when the one before it was: that is what an outage or a train in a tunnel does, and chance alone would hardly ever reach a schedule's
/// last retry.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// The clients with their weights.
    pub clients: Vec<(Preset, f64)>,
    /// Operations a second.
    pub rate: f64,
    /// How long the trace is, in seconds. What comes later is cut off.
    pub duration: f64,
    /// The share of first answers that is lost.
    pub loss: f64,
    /// The share of answers that is lost when the one before was.
    pub loss_again: f64,
    /// The share of attempts that fails before anything is claimed (refused connections, 503): no arrival, but a retry.
    pub failures: f64,
    /// How many scopes.
    pub scopes: u32,
    /// The median size of an outcome, in bytes.
    pub size: f64,
    /// The median time that a handler takes, in seconds.
    pub took: f64,
    /// When it begins, in seconds since 1970. Default 2026-01-01, wherever the clock stands: a trace that is to be read must have ended by then.
    pub begin: i64,
    /// The same seed makes the same trace.
    pub seed: u64,
}

/// What cannot be made up.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MixtureError {
    /// No clients, or weights that are no weights.
    #[error("a mixture needs clients with weights above zero")]
    Weights,
    /// A number out of its range.
    #[error("{0} must be {1}")]
    Range(&'static str, &'static str),
}

impl Default for Mixture {
    /// All presets alike, 2 operations a second for 90 days, of which 1% lose their answer.
    fn default() -> Self {
        Self {
            clients: crate::presets::all().into_iter().map(|preset| (preset, 1.0)).collect(),
            rate: 2.0,
            duration: 90.0 * 86_400.0,
            loss: 0.01,
            loss_again: 0.7,
            failures: 0.01,
            scopes: 20,
            size: 600.0,
            took: 0.08,
            begin: 1_767_225_600,
            seed: 1,
        }
    }
}

impl Mixture {
    /// Gives every arrival to `take`, in the order of time. Says how many there were.
    ///
    /// # Errors
    /// [`MixtureError`] before anything is made up, or what `take` answers.
    pub fn arrivals<E: From<MixtureError>>(
        &self,
        mut take: impl FnMut(&Arrival<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        self.check()?;
        let mut random = StdRng::seed_from_u64(self.seed);
        let law = |median: f64, sigma| LogNormal::new(median.ln(), sigma).map_err(|_| MixtureError::Weights);
        let (sizes, tooks) = (law(self.size, 0.6)?, law(self.took, 0.7)?);
        let between = Exp::new(self.rate).map_err(|_| MixtureError::Range("the rate", "above zero"))?;
        let whole: f64 = self.clients.iter().map(|(_, weight)| weight).sum();
        let scopes: Vec<String> = (0..self.scopes).map(|scope| format!("{:016x}", spread(u64::from(scope)))).collect();

        let (mut waiting, mut count) = (BinaryHeap::new(), 0);
        let (mut next, mut number) = (between.sample(&mut random), 0u64);
        let mut key = String::new();
        loop {
            // Whatever comes first: a retry that waits, or a new operation.
            let first = waiting.peek().map(|Reverse(Attempt { micros, .. })| *micros);
            let attempt = if first.is_some_and(|first| first <= micros(next)) {
                waiting.pop().map(|Reverse(attempt)| attempt)
            } else {
                let client = pick(&self.clients, whole, random.random());
                let scope = random.random_range(0..self.scopes);
                let size = sizes.sample(&mut random).min(f64::from(u32::MAX)) as u32 + 1;
                let begun = micros(next);
                number += 1;
                next += between.sample(&mut random);
                Some(Attempt { micros: begun, begun, number, retries: 0, client, scope, size, lost: false })
            };
            let Some(attempt) = attempt.filter(|attempt| (attempt.micros as f64) < self.duration * 1e6) else {
                return Ok(count);
            };
            let (preset, _) = &self.clients[attempt.client];
            let took = tooks.sample(&mut random).min(3600.0);
            let arrives = random.random::<f64>() >= self.failures;
            let lost = random.random::<f64>() < if attempt.lost { self.loss_again } else { self.loss };
            if arrives {
                key.clear();
                key.push_str(&hexadecimal(spread(attempt.number), spread(attempt.number ^ self.seed << 40)));
                take(&Arrival {
                    time: self.begin * 1_000_000 + attempt.micros,
                    key: &key,
                    size: attempt.size,
                    route: &preset.name,
                    scope: &scopes[attempt.scope as usize],
                    took: micros(took),
                })?;
                count += 1;
            }
            let schedule = &preset.schedule;
            let again = !arrives || lost || schedule.stop_on_success == StopOnSuccess::No;
            if again && attempt.retries < schedule.retries {
                // An answer that is lost is waited for until the timeout.
                let waited = if lost && arrives { schedule.timeout.max(took) } else { took };
                let delay = waited + schedule.delay(attempt.retries + 1, &mut random);
                let time = attempt.micros.saturating_add(micros(delay).max(1));
                if ((time - attempt.begun) as f64) < schedule.give_up * 1e6 {
                    let retries = attempt.retries + 1;
                    waiting.push(Reverse(Attempt { micros: time, retries, lost: lost && arrives, ..attempt }));
                }
            }
        }
    }

    /// Writes the trace.
    ///
    /// # Errors
    /// When it cannot be written, or made up.
    pub fn write(&self, to: &mut impl Write) -> Result<u64, WriteError> {
        writeln!(to, "{HEADER}")?;
        self.arrivals(|arrival| {
            let Arrival { time, key, size, route, scope, took } = arrival;
            let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
            let (ms, rest) = (took / 1000, took % 1000);
            writeln!(to, "{seconds}.{micros:06},{key},{size},{route},{scope},{ms}.{rest:03}")?;
            Ok(())
        })
    }

    fn check(&self) -> Result<(), MixtureError> {
        let sum: f64 = self.clients.iter().map(|(_, weight)| weight).sum();
        let fine = self.clients.iter().all(|(_, weight)| weight.is_finite() && *weight >= 0.0);
        if !fine || sum <= 0.0 {
            return Err(MixtureError::Weights);
        }
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let ranges = [
            ("the rate", positive(self.rate), "above zero"),
            ("the duration", positive(self.duration) && self.duration <= 36_500.0 * 86_400.0, "from 1 µs to 36500 d"),
            ("the loss rate", share(self.loss), "from 0 to 1"),
            ("the loss rate after a loss", share(self.loss_again), "from 0 to 1"),
            ("the failure rate", share(self.failures), "from 0 to 1"),
            ("the number of scopes", self.scopes > 0, "above zero"),
            ("the size", positive(self.size) && self.size < 1e9, "above zero and below 10^9"),
            ("the handler's time", positive(self.took) && self.took <= 3600.0, "above zero and at most an hour"),
        ];
        match ranges.into_iter().find(|(_, fine, _)| !fine) {
            Some((name, _, range)) => Err(MixtureError::Range(name, range)),
            None => Ok(()),
        }
    }
}

/// Why a trace was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// It could not be made up.
    #[error(transparent)]
    Mixture(#[from] MixtureError),
    /// It could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a pass over a made-up trace ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError {
    /// It could not be made up.
    #[error(transparent)]
    Mixture(#[from] MixtureError),
    /// The pass took no more.
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

/// An attempt that is still to come. The order of the fields is the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attempt {
    micros: i64,
    number: u64,
    begun: i64,
    retries: u32,
    client: usize,
    scope: u32,
    size: u32,
    lost: bool,
}

fn pick(clients: &[(Preset, f64)], whole: f64, draw: f64) -> usize {
    let mut left = draw * whole;
    let found = clients.iter().position(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    found.unwrap_or(clients.len() - 1)
}

fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// Neighbouring numbers become unlike ones (the finaliser of `SplitMix64`), no two the same.
fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn hexadecimal(high: u64, low: u64) -> String {
    format!("{high:016x}{low:016x}")
}
