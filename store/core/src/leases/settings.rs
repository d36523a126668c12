//! Settings of one kind of lease.

use std::time::Duration;

use crate::Lease;
use crate::time::{InvalidDuration, check};

/// How leases of one kind of work are taken and kept.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    pub(super) lease: Lease,
    pub(super) store_timeout: Duration,
    pub(super) max_hold: Duration,
    pub(super) renew: bool,
}

impl LeaseSettings {
    /// How long a lease is held without renewal. Default 30 s. Shorter: a holder that crashed keeps others out for less
    /// long. Too short for the store's hiccups: live holders lose it.
    #[must_use]
    pub fn lease(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// How long one answer of the store is waited for. Default 1 s. Also decides how long an abandoned nonce stays dead.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn store_timeout(self, store_timeout: Duration) -> Result<Self, InvalidDuration> {
        Ok(Self { store_timeout: check("the store timeout", store_timeout)?, ..self })
    }

    /// How long a lease is renewed at most. Default 15 min. Work that takes longer loses it a lease later; longer than work can
    /// take, and work that hangs keeps everybody out.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn max_hold(self, max_hold: Duration) -> Result<Self, InvalidDuration> {
        Ok(Self { max_hold: check("max hold", max_hold)?, ..self })
    }

    /// Never renews: for tests, and for work that is certain to end within one lease.
    #[must_use]
    pub fn without_renewal(self) -> Self {
        Self { renew: false, ..self }
    }

    /// The lease.
    #[must_use]
    pub const fn lease_setting(&self) -> Lease {
        self.lease
    }

    /// How long one answer of the store is waited for.
    #[must_use]
    pub const fn store_timeout_setting(&self) -> Duration {
        self.store_timeout
    }

    /// How long a lease is renewed at most.
    #[must_use]
    pub const fn max_hold_setting(&self) -> Duration {
        self.max_hold
    }

    /// How often it is renewed: two renewals may fail before it is lost.
    pub(super) fn renewal_interval(&self) -> Duration {
        self.lease.length() / 3
    }
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            lease: Lease::default(),
            store_timeout: Duration::from_secs(1),
            max_hold: Duration::from_secs(15 * 60),
            renew: true,
        }
    }
}
