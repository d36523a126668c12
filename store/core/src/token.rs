//! The fencing token.

use std::fmt;
use std::num::NonZeroU64;

use crate::Timestamp;

/// An integer from 1 to 2^53 - 1, strictly increasing per record and per resource.
///
/// A store that receives a write with it refuses older tokens; that check is what makes a paused
/// holder harmless. There is no way to make one out of an efficiency lock.
///
/// 2^53 is where a double stops counting in ones, and Redis scripts and JSON readers count in doubles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The largest token.
    pub const MAX: u64 = (1 << 53) - 1;

    /// The token with this number.
    ///
    /// # Errors
    /// [`InvalidToken`] for 0 and for 2^53 and above.
    pub fn new(number: u64) -> Result<Self, InvalidToken> {
        NonZeroU64::new(number).filter(|n| n.get() <= Self::MAX).map(Self).ok_or(InvalidToken(number))
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The token after `previous` at `now`: `max(previous + 1, now in microseconds)`.
    ///
    /// Microseconds since 1970 stay below 2^53 until the year 2255; a count that would pass it stays there.
    #[must_use]
    pub fn after(previous: Option<Self>, now: Timestamp) -> Self {
        let clock = u64::try_from(now.micros()).unwrap_or(0);
        let next = previous.map_or(1, |p| p.get() + 1);
        let number = clock.max(next).min(Self::MAX);
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}

/// The number is no fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is an integer from 1 to 2^53 - 1, not {0}")]
pub struct InvalidToken(pub u64);
