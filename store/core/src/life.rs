//! Life settings: what the first claim of a record's life decides for all that follow.

use std::sync::Arc;
use std::time::Duration;

use crate::time::{InvalidDuration, check};
use crate::{Lease, Timestamp};

/// What happens to an attempt that ended without a known outcome. Kept in the record, so that a node
/// with another configuration cannot change it for a running attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing runs again until somebody knows: the record is in doubt and waits for `resolve`.
    #[default]
    Hold,
    /// A duplicate runs again with a larger token. Right where a repeat is a no-op: the effect shares
    /// a transaction with the outcome or with a UNIQUE marker, or is behind the outbound guard.
    Rerun,
}

/// How long a completed record is remembered. Both windows count from completion, and neither is renewed unless
/// [`renewed_up_to`](Self::renewed_up_to) says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    response: Duration,
    tombstone: Duration,
    renewal_cap: Option<Duration>,
}

impl Windows {
    /// The outcome is kept for `response`, the fact that it was executed for `tombstone`.
    ///
    /// # Errors
    /// [`InvalidDuration`] for a window below 1 ms or above 36500 days, or a tombstone window shorter
    /// than the response window.
    pub fn new(response: Duration, tombstone: Duration) -> Result<Self, InvalidDuration> {
        check("the response window", response)?;
        check("the tombstone window", tombstone)?;
        if tombstone < response {
            return Err(InvalidDuration::TombstoneWindow {
                tombstone,
                least: response,
                why: "it covers the response window",
            });
        }
        Ok(Self { response, tombstone, renewal_cap: None })
    }

    /// A hit on a tombstone renews its window: the fact is kept for a tombstone window from that hit on, but for no longer than
    /// `cap` from completion. Default: no hit renews anything. Four tombstone windows are a cap to begin with.
    ///
    /// *What it buys*: the tombstone window need not cover the whole horizon of those who retry, only the response window and
    /// their largest gap between two retries. Svix tries for 27.6 h and never pauses for more than 10 h; SNS before a queue tries for 23
    /// days, every 20 s.
    ///
    /// *What it costs*: a write for a hit, and the record for as long as somebody goes on asking, up to the cap.
    ///
    /// 1. The setting of the claim that hits decides, not the record's, and it can only lengthen.
    /// 2. Only what is answered as executed renews: not a replay, a mismatch or a look at the record. The age that a duplicate is told goes on
    ///    counting from completion.
    /// 3. A renewal that gains less than a hundredth of the tombstone window is not written. So what is promised after a hit
    ///    is 99 hundredths of it.
    /// 4. The hit is answered in any case. When the write fails, or takes a database more than half a second, it is not waited for and may
    ///    be lost, as if that hit had not been.
    ///
    /// ```
    /// # fn main() -> Result<(), idempotency::time::InvalidDuration> {
    /// use std::time::Duration;
    ///
    /// use idempotency::Windows;
    ///
    /// const HOUR: Duration = Duration::from_secs(3600);
    /// let windows = Windows::new(HOUR, 12 * HOUR)?.renewed_up_to(48 * HOUR)?;
    /// # let _ = windows;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidDuration`] for a cap below the tombstone window or above 36500 days.
    pub fn renewed_up_to(self, cap: Duration) -> Result<Self, InvalidDuration> {
        check("the cap of renewals", cap)?;
        if cap < self.tombstone {
            return Err(InvalidDuration::RenewalCap { cap, tombstone: self.tombstone });
        }
        Ok(Self { renewal_cap: Some(cap), ..self })
    }

    /// How long the full outcome is kept. Default 24 h.
    #[must_use]
    pub const fn response(&self) -> Duration {
        self.response
    }

    /// How long the fact of execution is kept. Default 30 d.
    #[must_use]
    pub const fn tombstone(&self) -> Duration {
        self.tombstone
    }

    /// How long hits may keep a tombstone, counted from completion, if they renew it: see [`Windows::renewed_up_to`].
    #[must_use]
    pub const fn renewal_cap(&self) -> Option<Duration> {
        self.renewal_cap
    }
}

impl Default for Windows {
    fn default() -> Self {
        let (response, tombstone) = (Duration::from_secs(24 * 3600), Duration::from_secs(30 * 86_400));
        Self { response, tombstone, renewal_cap: None }
    }
}

/// A name for keys that share an age limit and a floor, such as `uuid7`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyClass(Arc<str>);

impl KeyClass {
    /// A class called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The oldest and newest that a time-ordered key may be when it is claimed.
///
/// # Where keys were opaque before
/// A record that was made without an age limit raises no floor when it is forgotten. So that a late duplicate never runs again is promised for keys
/// dated later than the moment at which the limit was switched on **everywhere** plus the drift. Older ones may have run, may be forgotten, and run again
/// while they are young enough. Switch the limit on with a maximum age and a drift that together are no longer than the tombstone window
/// that was in force until then: a key that is dated right to within the drift is then too old before its record is forgotten. Raise the maximum age, if
/// at all, when it has been on for the new maximum age and the drift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgeLimit {
    /// A key at least this old is refused when no record answers for it.
    pub max_age: Duration,
    /// How far ahead of the store's clock a key may be dated.
    pub drift: Duration,
    /// The class whose floor is raised by purges.
    pub class: KeyClass,
}

impl AgeLimit {
    /// How long a record of a key made at `key_time` must be kept so that the key is too old by the time
    /// the record is gone.
    #[must_use]
    pub fn kept_until(&self, key_time: Timestamp) -> Timestamp {
        key_time.after(self.max_age).after(self.drift)
    }
}

/// The settings written by the first claim of a record's life and kept by all later operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Life {
    recovery: Recovery,
    windows: Windows,
    age: Option<AgeLimit>,
}

impl Life {
    /// Settings for opaque keys.
    #[must_use]
    pub const fn new(recovery: Recovery, windows: Windows) -> Self {
        Self { recovery, windows, age: None }
    }

    /// The same with an age limit for time-ordered keys, for claims of at most `lease`. On keys that were opaque until now it has a
    /// condition: see [`AgeLimit`].
    ///
    /// # Errors
    /// [`InvalidDuration`] when a duration is out of range, or when the tombstone window does not cover
    /// maximum age, drift and lease: then a key could be young enough to run while its record is gone.
    pub fn with_age(self, age: AgeLimit, lease: Lease) -> Result<Self, InvalidDuration> {
        check("the maximum age", age.max_age)?;
        check("the drift", age.drift)?;
        let least = age.max_age + age.drift + lease.length();
        if self.windows.tombstone < least {
            return Err(InvalidDuration::TombstoneWindow {
                tombstone: self.windows.tombstone,
                least,
                why: "it covers maximum age, drift and lease of time-ordered keys",
            });
        }
        Ok(Self { age: Some(age), ..self })
    }

    /// From parts that a store read back from its own record, without checking them again.
    #[must_use]
    pub fn from_stored(recovery: Recovery, response: Duration, tombstone: Duration, age: Option<AgeLimit>) -> Self {
        Self { recovery, windows: Windows { response, tombstone, renewal_cap: None }, age }
    }

    /// The same with another recovery.
    #[must_use]
    pub fn with_recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }

    /// The same with other windows, without checking that they cover the age limit: see [`Settings::checked`](crate::Settings::checked).
    #[must_use]
    pub fn with_windows(self, windows: Windows) -> Self {
        Self { windows, ..self }
    }

    /// The fact of execution is kept for so long from now on.
    pub(crate) fn set_tombstone_window(&mut self, tombstone: Duration) {
        self.windows.tombstone = tombstone;
    }

    /// What happens after an attempt without a known outcome.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// How long a completed record is remembered.
    #[must_use]
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The age limit, for time-ordered keys.
    #[must_use]
    pub const fn age(&self) -> Option<&AgeLimit> {
        self.age.as_ref()
    }
}
