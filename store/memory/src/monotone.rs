//! A clock that never shows less than it has shown.

use std::sync::atomic::{AtomicI64, Ordering};

use idempotency::{Clock, Timestamp};

/// The larger of a clock and the largest time it has shown. Ages, windows and purges follow it, so a wall clock that
/// is set back makes nothing young again.
#[derive(Debug)]
pub(crate) struct Monotone<C> {
    clock: C,
    seen: AtomicI64,
}

impl<C: Clock> Monotone<C> {
    pub(crate) fn new(clock: C) -> Self {
        let seen = AtomicI64::new(clock.now().micros());
        Self { clock, seen }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.clock.now().micros();
        Timestamp::from_micros(self.seen.fetch_max(now, Ordering::Relaxed).max(now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idempotency::time::ManualClock;

    use super::*;

    #[test]
    fn a_clock_that_steps_back_stands_still_until_it_has_caught_up() {
        let clock = ManualClock::new(Timestamp::from_micros(100));
        let monotone = Monotone::new(clock.clone());
        clock.set(Timestamp::from_micros(70));
        assert_eq!(monotone.now().micros(), 100);
        clock.advance(Duration::from_micros(30));
        assert_eq!(monotone.now().micros(), 100);
        clock.advance(Duration::from_micros(1));
        assert_eq!(monotone.now().micros(), 101);
    }
}
