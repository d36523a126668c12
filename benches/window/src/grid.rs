//! The windows, or the capacities, that are judged at once.

use std::time::Duration;

/// Increasing bounds, at least one and at most 64: what an arrival does under all of them fits one word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid(Vec<i64>);

/// Why there is no such grid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GridError {
    /// None, or more than 64.
    #[error("a grid has 1 to {most} windows, not {0}", most = Grid::MOST)]
    Count(usize),
    /// Zero or below.
    #[error("a window of {0} µs: it must be longer than zero")]
    NotPositive(i64),
    /// Longer than 36500 days.
    #[error("a window of {0:?} is longer than 36500 days")]
    TooLong(Duration),
    /// The first of a logarithmic grid is not below its last.
    #[error("the shortest window {shortest:?} is not below the longest {longest:?}")]
    Backwards {
        /// The first.
        shortest: Duration,
        /// The last.
        longest: Duration,
    },
}

impl Grid {
    /// How many windows a grid has at most.
    pub const MOST: usize = 64;

    /// These windows in microseconds, in any order; equal ones count once.
    ///
    /// # Errors
    /// [`GridError`] when there is none or more than 64, or one is not above zero or above 36500 days.
    pub fn of(mut windows: Vec<i64>) -> Result<Self, GridError> {
        windows.sort_unstable();
        windows.dedup();
        if windows.is_empty() || windows.len() > Self::MOST {
            return Err(GridError::Count(windows.len()));
        }
        if windows[0] <= 0 {
            return Err(GridError::NotPositive(windows[0]));
        }
        let longest = windows[windows.len() - 1];
        if longest > LONGEST {
            return Err(GridError::TooLong(Duration::from_micros(longest.unsigned_abs())));
        }
        Ok(Self(windows))
    }

    /// `count` windows from `shortest` to `longest`, each longer than the one before by the same factor, in whole
    /// seconds where they are longer than a minute.
    ///
    /// # Errors
    /// [`GridError`] for a bound of zero or above 36500 days, bounds in the wrong order, or a count out of range.
    pub fn logarithmic(shortest: Duration, longest: Duration, count: usize) -> Result<Self, GridError> {
        let (first, last) = (micros(shortest)?, micros(longest)?);
        if !(2..=Self::MOST).contains(&count) {
            return Err(GridError::Count(count));
        }
        if first >= last {
            return Err(GridError::Backwards { shortest, longest });
        }
        let step = (last as f64 / first as f64).ln() / (count - 1) as f64;
        let window = |i: usize| {
            let exact = (first as f64 * (step * i as f64).exp()).round() as i64;
            if exact > 60_000_000 { (exact + 500_000) / 1_000_000 * 1_000_000 } else { exact }
        };
        let inner = (1..count - 1).map(|i| window(i).clamp(first, last));
        Self::of(std::iter::once(first).chain(inner).chain([last]).collect())
    }

    /// These durations.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn durations(windows: &[Duration]) -> Result<Self, GridError> {
        Self::of(windows.iter().map(|window| micros(*window)).collect::<Result<_, _>>()?)
    }

    /// The bounds, in order.
    #[must_use]
    pub fn bounds(&self) -> &[i64] {
        &self.0
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// How many bounds are below `value`: the ones that it escapes.
    #[must_use]
    pub fn below(&self, value: i64) -> usize {
        self.0.partition_point(|bound| *bound < value)
    }
}

impl Default for Grid {
    /// 64 windows from 1 min to 60 d: above the longest retry horizons that are known.
    fn default() -> Self {
        let logarithmic = Self::logarithmic(Duration::from_secs(60), Duration::from_secs(60 * 86_400), 64);
        logarithmic.unwrap_or_else(|_| Self(vec![60_000_000]))
    }
}

fn micros(window: Duration) -> Result<i64, GridError> {
    let micros = i64::try_from(window.as_micros()).map_err(|_| GridError::TooLong(window))?;
    if micros > LONGEST { Err(GridError::TooLong(window)) } else { Ok(micros) }
}

/// 36500 days in microseconds, as everywhere in this project.
pub(crate) const LONGEST: i64 = 36_500 * 86_400 * 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_grid_has_both_ends_and_even_steps() {
        let grid = Grid::default();
        let bounds = grid.bounds();
        assert_eq!((bounds.len(), bounds[0], bounds[63]), (64, 60_000_000, 60 * 86_400_000_000));
        for pair in bounds.windows(2) {
            let step = pair[1] as f64 / pair[0] as f64;
            assert!((1.18..1.22).contains(&step), "{step}");
        }
    }

    #[test]
    fn windows_of_nothing_below_nothing_or_beyond_everything_are_refused() {
        assert_eq!(Grid::of(vec![]), Err(GridError::Count(0)));
        assert_eq!(Grid::of((1..=65).collect()), Err(GridError::Count(65)));
        assert_eq!(Grid::of(vec![0, 5]), Err(GridError::NotPositive(0)));
        assert_eq!(Grid::of(vec![-3, 5]), Err(GridError::NotPositive(-3)));
        assert_eq!(Grid::durations(&[Duration::MAX]), Err(GridError::TooLong(Duration::MAX)));
        let day = Duration::from_secs(86_400);
        assert!(matches!(Grid::of(vec![i64::MAX]), Err(GridError::TooLong(_))));
        assert!(matches!(Grid::logarithmic(Duration::ZERO, day, 8), Err(GridError::NotPositive(0))));
        assert!(matches!(Grid::logarithmic(day, day, 8), Err(GridError::Backwards { .. })));
        assert_eq!(Grid::logarithmic(day, day * 2, 65), Err(GridError::Count(65)));
    }

    #[test]
    fn below_counts_the_bounds_that_are_exceeded() {
        let grid = Grid::of(vec![30, 10, 20, 20]).unwrap();
        assert_eq!([10, 11, 20, 30, 31].map(|gap| grid.below(gap)), [0, 1, 1, 2, 3]);
    }
}
