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

/// How long a completed record is remembered. Both windows count from completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    response: Duration,
    tombstone: Duration,
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
        Ok(Self { response, tombstone })
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
}

impl Default for Windows {
    fn default() -> Self {
        Self { response: Duration::from_secs(24 * 3600), tombstone: Duration::from_secs(30 * 86_400) }
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

    /// The same with an age limit for time-ordered keys, for claims of at most `lease`.
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
        Self { recovery, windows: Windows { response, tombstone }, age }
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
