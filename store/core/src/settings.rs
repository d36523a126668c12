//! Settings of one kind of work.

use std::time::Duration;

use crate::time::{InvalidDuration, check};
use crate::trace::Trace;
use crate::{Lease, Life};

/// How claims of one kind of work are made and kept.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) lease: Lease,
    pub(crate) life: Life,
    pub(crate) max_run: Duration,
    pub(crate) store_timeout: Duration,
    pub(crate) in_flight: InFlight,
    pub(crate) max_waiting: usize,
    pub(crate) renew: bool,
    /// None until it is set, so that windows below the default are no fault of who uses no transactions.
    transaction_limit: Option<Lease>,
    pub(crate) trace: Option<Trace>,
}

/// What a duplicate does while the first is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InFlight {
    /// It is told so at once.
    #[default]
    Reject,
    /// It waits for the outcome, at most so long, and is then told so. It holds its connection and memory meanwhile,
    /// and nothing of the store. How many wait at once is [bounded](Settings::max_waiting).
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

    /// How many duplicates wait at once in this process, over all engines that share a store by
    /// [`with_settings`](crate::Engine::with_settings). Default 1000. One more is told at once that the first is running, as under
    /// [`InFlight::Reject`]. Each that waits holds its connection and its whole request: a larger number lets a flood of duplicates take more
    /// memory, a smaller one makes more clients ask again.
    #[must_use]
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// How long the transaction that holds effect and outcome may take, from `begin` to `commit`. Default 30 s. The lease lasts so
    /// long once it has begun and is not renewed: a transaction that takes longer is taken over, and rolled back when it
    /// comes to its commit. Where the server can, one that stands still for so long is ended by it, so a paused process blocks its
    /// successor no longer than that.
    #[must_use]
    pub fn transaction_limit(self, transaction_limit: Lease) -> Self {
        Self { transaction_limit: Some(transaction_limit), ..self }
    }

    /// Never renews a lease: for tests, and for work that is certain to end within one.
    #[must_use]
    pub fn without_renewal(self) -> Self {
        Self { renew: false, ..self }
    }

    /// Writes what arrives, and when, into a [trace](crate::trace). Default: none.
    #[must_use]
    pub fn trace(self, trace: Trace) -> Self {
        Self { trace: Some(trace), ..self }
    }

    /// These settings, if they fit together, which their setters cannot know one by one: the tombstone window covers the lease, the
    /// [transaction limit](Settings::transaction_limit) where one is set (it lengthens the lease), and with an age limit also the maximum age and the drift.
    ///
    /// The error at construction: **end with it wherever settings are made**. An [`Engine`](crate::Engine) takes any; over settings that do not fit it
    /// only says so in the log, as an error, when it is made by [`new`](crate::Engine::new) or, otherwise, when it grants its first claim.
    ///
    /// ```
    /// use idempotency::Settings;
    ///
    /// let settings = Settings::default().checked()?;
    /// # Ok::<(), idempotency::time::InvalidDuration>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidDuration::TombstoneWindow`] when it does not.
    pub fn checked(self) -> Result<Self, InvalidDuration> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), InvalidDuration> {
        let tombstone = self.life.windows().tombstone();
        let covered =
            [(Some(self.lease), "it covers the lease"), (self.transaction_limit, "it covers the transaction limit")];
        for (lease, why) in covered.into_iter().filter_map(|(lease, why)| Some((lease?, why))) {
            if tombstone < lease.length() {
                return Err(InvalidDuration::TombstoneWindow { tombstone, least: lease.length(), why });
            }
            if let Some(age) = self.life.age() {
                self.life.clone().with_age(age.clone(), lease)?;
            }
        }
        Ok(())
    }

    /// Says so in the log when these do not fit together.
    pub(crate) fn complain(&self) {
        if let Err(error) = self.check() {
            tracing::error!(%error, "these settings do not fit together; Settings::checked would have refused them");
        }
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
    pub fn transaction_limit_setting(&self) -> Lease {
        self.transaction_limit.unwrap_or_default()
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
            max_waiting: 1000,
            renew: true,
            transaction_limit: None,
            trace: None,
        }
    }
}
