//! Settings of one kind of work.

use std::time::Duration;

use crate::time::{InvalidDuration, check};
use crate::{Lease, Life};

/// How claims of one kind of work are made and kept.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) lease: Lease,
    pub(crate) life: Life,
    pub(crate) max_run: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) in_flight: InFlight,
    pub(crate) renew: bool,
    pub(crate) transaction_limit: Lease,
}

/// What a duplicate does while the first is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// It is told so at once.
    #[default]
    Reject,
    /// It waits for the outcome, at most so long, and is then told so. It holds its connection and memory meanwhile,
    /// and nothing of the store.
    Wait(Duration),
}

impl Settings {
    /// How long a claim is held without renewal. Default 30 s. Shorter: a crashed attempt is noticed sooner. Too
    /// short for the store's hiccups: live attempts lose their claims.
    #[must_use]
    pub fn lease(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// Recovery, windows and age limit of records. Default: hold, 24 h and 30 d, opaque keys. Kept in each record from
    /// its first claim on.
    #[must_use]
    pub fn life(self, life: Life) -> Self {
        Self { life, ..self }
    }

    /// How long a running attempt is renewed at most. Default 15 min. An attempt that runs longer loses its claim a lease later,
    /// and what follows is up to the recovery.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn max_run(self, max_run: Duration) -> Result<Self, InvalidDuration> {
        Ok(Self { max_run: check("max run", max_run)?, ..self })
    }

    /// How long one answer of the store is waited for. Default 1 s. Also decides how long an abandoned nonce stays dead.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn store_timeout(self, store_timeout: Duration) -> Result<Self, InvalidDuration> {
        Ok(Self { store_timeout: check("the store timeout", store_timeout)?, ..self })
    }

    /// What a duplicate does while the first is running. Default [`InFlight::Reject`].
    #[must_use]
    pub fn in_flight(self, in_flight: InFlight) -> Self {
        Self { in_flight, ..self }
    }

    /// How long the transaction that holds effect and outcome may take, from `begin` to `commit`. Default 30 s. The lease lasts so
    /// long once it has begun and is not renewed: a transaction that takes longer is taken over, and rolled back when it
    /// comes to its commit. Where the server can, one that stands still for so long is ended by it, so a paused process blocks its
    /// successor no longer than that.
    #[must_use]
    pub fn transaction_limit(self, transaction_limit: Lease) -> Self {
        Self { transaction_limit, ..self }
    }

    /// Never renews a lease: for tests, and for work that is certain to end within one.
    #[must_use]
    pub fn without_renewal(self) -> Self {
        Self { renew: false, ..self }
    }

    /// How often a running attempt's lease is renewed: two renewals may fail before it is lost.
    pub(crate) fn renewal_interval(&self) -> Duration {
        self.lease.length() / 3
    }

    /// The lease.
    #[must_use]
    pub const fn lease_setting(&self) -> Lease {
        self.lease
    }

    /// Recovery, windows and age limit.
    #[must_use]
    pub const fn life_setting(&self) -> &Life {
        &self.life
    }

    /// How long one answer of the store is waited for.
    #[must_use]
    pub const fn store_timeout_setting(&self) -> Duration {
        self.store_timeout
    }

    /// How long a running attempt is renewed at most.
    #[must_use]
    pub const fn max_run_setting(&self) -> Duration {
        self.max_run
    }

    /// How long a transaction with effect and outcome may take.
    #[must_use]
    pub const fn transaction_limit_setting(&self) -> Lease {
        self.transaction_limit
    }

    /// What a duplicate does while the first is running.
    #[must_use]
    pub const fn in_flight_setting(&self) -> InFlight {
        self.in_flight
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Lease::default(),
            life: Life::default(),
            max_run: Duration::from_secs(15 * 60),
            store_timeout: Duration::from_secs(1),
            in_flight: InFlight::Reject,
            renew: true,
            transaction_limit: Lease::default(),
        }
    }
}
