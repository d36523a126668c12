//! When a client tries again.

use rand::{Rng, RngExt as _};
use rand_distr::{Distribution as _, LogNormal};

/// The retries of one kind of client. All times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// How often it tries again at most, after the first time.
    pub retries: u32,
    /// How long it waits before each retry.
    pub delays: Delays,
    /// What chance does to a delay.
    pub jitter: Jitter,
    /// How long it waits for an answer. The delay begins after it.
    pub timeout: f64,
    /// Whether it ends when it got an answer. Those that do not send everything as often as they may.
    pub stop_on_success: StopOnSuccess,
    /// It does not try again when so much time has gone since the first time.
    pub give_up: f64,
}

/// Whether a client stops when it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOnSuccess {
    /// As nearly all do.
    Yes,
    /// The same key comes again whatever the answer was: a scheduled job that is run twice, an operator's redelivery.
    No,
}

/// How long before retry j, from 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Delays {
    /// `base * mult^(j-1)`, at most `cap`.
    Exponential {
        /// Before the first retry.
        base: f64,
        /// What each is longer by.
        mult: f64,
        /// The longest.
        cap: f64,
    },
    /// One after the other; the last one again and again.
    Table(Vec<f64>),
    /// A draw from a mixture of log-normal laws, not above `most`.
    LogNormal {
        /// Weight, median and sigma of each.
        parts: Vec<(f64, f64, f64)>,
        /// The longest.
        most: f64,
    },
}

/// What chance does to a delay d.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// Nothing.
    None,
    /// Anything from 0 to d.
    Full,
    /// Anything from d/2 to d.
    Equal,
    /// Up to this share of d more or less.
    Ratio(f64),
    /// Up to this many seconds, times j, more.
    Additive(f64),
}

impl Schedule {
    /// The delay before retry `number`, from 1.
    pub fn delay(&self, number: u32, random: &mut impl Rng) -> f64 {
        let step = i32::try_from(number - 1).unwrap_or(i32::MAX);
        let delay = match &self.delays {
            Delays::Exponential { base, mult, cap } => (base * mult.powi(step)).min(*cap),
            Delays::Table(table) => table.get(step as usize).or(table.last()).copied().unwrap_or(0.0),
            Delays::LogNormal { parts, most } => log_normal(parts, random).min(*most),
        };
        match self.jitter {
            Jitter::None => delay,
            Jitter::Full => delay * random.random::<f64>(),
            Jitter::Equal => delay * (0.5 + 0.5 * random.random::<f64>()),
            Jitter::Ratio(ratio) => delay * (1.0 + ratio * (2.0 * random.random::<f64>() - 1.0)),
            Jitter::Additive(most) => delay + most * f64::from(number) * random.random::<f64>(),
        }
    }
}

fn log_normal(parts: &[(f64, f64, f64)], random: &mut impl Rng) -> f64 {
    let whole: f64 = parts.iter().map(|(weight, ..)| weight).sum();
    let mut draw = random.random::<f64>() * whole;
    for (weight, median, sigma) in parts {
        draw -= weight;
        if draw <= 0.0 {
            return LogNormal::new(median.ln(), *sigma).map_or(*median, |law| law.sample(random));
        }
    }
    0.0
}
