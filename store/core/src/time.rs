//! Time as the protocol uses it: the store's clock for every expiry, and a clock that runs through
//! suspend for what a process may still believe about its own lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// A point in time on a *store's* clock, in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest time there is.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest time there is.
    pub const MAX: Self = Self(i64::MAX);

    /// From microseconds since 1970.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This time plus `duration`, at most [`Timestamp::MAX`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// This time minus `duration`, at least [`Timestamp::MIN`].
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }

    /// The time from `earlier` to this one; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }
}

/// `duration` in whole microseconds, at most `i64::MAX`.
#[must_use]
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The clock of an in-process store.
///
/// A server-backed store has its server's clock instead and takes no implementation of this trait.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The operating system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Timestamp(micros(since)),
            Err(before) => Timestamp(micros(before.duration()).saturating_neg()),
        }
    }
}

/// A clock that stands still until it is moved, for tests. Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.0)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(micros(by), Ordering::SeqCst);
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A point on this machine's clock since boot, which also runs while the machine is suspended.
///
/// `std::time::Instant` stops in suspend on Linux, so a holder that slept through its lease would
/// believe it still had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self(Duration::new(seconds, nanos))
    }

    /// This instant plus `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time from `earlier` to this one; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn to_micros(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_micros(micros: u64) -> Self {
        Self(Duration::from_micros(micros))
    }
}

/// The longest duration that any setting takes: 36500 days.
pub const LONGEST: Duration = Duration::from_secs(36_500 * 86_400);

/// A duration setting that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDuration {
    /// Shorter than a millisecond, which is what the coarsest store can tell apart.
    #[error("{what} must be at least 1 ms, not {given:?}")]
    TooShort {
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// Longer than [`LONGEST`].
    #[error("{what} must be at most 36500 days, not {given:?}")]
    TooLong {
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: Duration,
    },
    /// The tombstone window is shorter than what it must cover.
    #[error("the tombstone window ({tombstone:?}) must be at least {least:?}: {why}")]
    TombstoneWindow {
        /// The tombstone window that was given.
        tombstone: Duration,
        /// The least that is allowed.
        least: Duration,
        /// What it must cover.
        why: &'static str,
    },
    /// Renewals are to end before the window that they renew.
    #[error("the cap of renewals ({cap:?}) must be at least the tombstone window ({tombstone:?})")]
    RenewalCap {
        /// The cap that was given.
        cap: Duration,
        /// The tombstone window.
        tombstone: Duration,
    },
}

/// `given`, if it is a duration that a setting called `what` takes: 1 ms to [`LONGEST`].
///
/// # Errors
/// [`InvalidDuration`] below or above.
pub fn check(what: &'static str, given: Duration) -> Result<Duration, InvalidDuration> {
    if given < Duration::from_millis(1) {
        return Err(InvalidDuration::TooShort { what, given });
    }
    if given > LONGEST {
        return Err(InvalidDuration::TooLong { what, given });
    }
    Ok(given)
}

/// How long a claim is held before somebody else may take over: 1 ms to 36500 days, default 30 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease(Duration);

impl Lease {
    /// A lease of this length.
    ///
    /// # Errors
    /// [`InvalidDuration`] below a millisecond (zero is a value, and it is refused) or above 36500 days.
    pub fn new(length: Duration) -> Result<Self, InvalidDuration> {
        check("the lease", length).map(Self)
    }

    /// Its length.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self(Duration::from_secs(30))
    }
}
