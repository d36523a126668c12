//! One harness for every bench: subjects take turns in one run, and what is printed is the ratio to the first of them.
//!
//! These machines are shared and noisy, so a bare time says little. Every round runs each subject once, in turn; a subject's
//! ratio is the median over the rounds of its time in a round divided by the first subject's time in the same round.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

/// Something to be timed: a name, and what one round of so many operations does.
pub struct Subject<'r> {
    name: String,
    per_round: u32,
    round: Box<dyn FnMut(u32) -> Duration + 'r>,
}

impl<'r> Subject<'r> {
    /// A subject whose `round` runs `n` operations on `runtime`. Only what `round` returns as its time counts, so that it can prepare
    /// outside.
    pub fn new<F>(name: &str, per_round: u32, runtime: &'r Runtime, mut round: F) -> Self
    where
        F: AsyncFnMut(u32) -> Duration + 'r,
    {
        Self { name: name.to_owned(), per_round, round: Box::new(move |n| runtime.block_on(round(n))) }
    }
}

impl std::fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subject({})", self.name)
    }
}

/// Times `work`.
pub async fn timed(work: impl Future<Output = ()>) -> Duration {
    let begun = Instant::now();
    work.await;
    begun.elapsed()
}

/// What was measured of one subject.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// The median time of one operation.
    pub time: Duration,
    /// The median ratio to the first subject.
    pub ratio: f64,
    /// The lower and the upper quartile of that ratio.
    pub spread: (f64, f64),
    /// The median time that one operation takes more than the first subject's. Zero when it takes less.
    pub added: Duration,
    /// The time of one operation in each round.
    pub rounds: Vec<Duration>,
}

impl Row {
    fn of(name: &str, rounds: Vec<Duration>) -> Self {
        let time = middle(rounds.iter().copied());
        Self { name: name.to_owned(), time, ratio: 1.0, spread: (1.0, 1.0), added: Duration::ZERO, rounds }
    }

    /// How many times as long as `other` it takes, each round against the same round.
    #[must_use]
    pub fn against(&self, other: &Self) -> Quartiles {
        self.rounds.iter().zip(&other.rounds).map(|(t, b)| t.as_secs_f64() / b.as_secs_f64()).collect()
    }
}

/// The median of some values, and how far to trust it.
#[derive(Clone, Copy, Debug)]
pub struct Quartiles {
    /// The lower quartile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The upper quartile.
    pub high: f64,
}

impl FromIterator<f64> for Quartiles {
    /// # Panics
    /// Without any value.
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let quartile = |part: usize| values[(values.len() - 1) * part / 4];
        Self { low: quartile(1), median: quartile(2), high: quartile(3) }
    }
}

/// Runs `subjects` in turn for `rounds` rounds, after one to warm up.
pub fn compare(rounds: usize, subjects: &mut [Subject<'_>]) -> Vec<Row> {
    let mut times = vec![Vec::with_capacity(rounds); subjects.len()];
    for round in 0..=rounds {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            let time = (subject.round)(subject.per_round) / subject.per_round;
            if round > 0 {
                times.push(time);
            }
        }
    }
    let mut rows: Vec<Row> = subjects.iter().zip(times).map(|(subject, times)| Row::of(&subject.name, times)).collect();
    let bare = rows[0].clone();
    for row in &mut rows {
        let Quartiles { low, median, high } = row.against(&bare);
        (row.ratio, row.spread) = (median, (low, high));
        row.added = middle(row.rounds.iter().zip(&bare.rounds).map(|(t, b)| t.saturating_sub(*b)));
    }
    rows
}

fn middle(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    times[times.len() / 2]
}

/// The rows as a Markdown table. The ratios are what counts; the times say what they are ratios of.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from("| what | ratio to bare | quartiles | added | time |\n|---|---|---|---|---|\n");
    for Row { name, time, ratio, spread: (low, high), added, .. } in rows {
        let _ = writeln!(text, "| {name} | {ratio:.2}x | {low:.2}-{high:.2} | +{added:.2?} | {time:.2?} |");
    }
    text
}
