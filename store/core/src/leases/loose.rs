//! A lease for efficiency.

use std::fmt;
use std::time::Duration;

use super::contract::Leases;
use super::held::Released;
use super::hold::Hold;
use super::leaser::{Leaser, Taken};
use super::settings::LeaseSettings;
use crate::{Resource, StoreError};

/// Takes leases **for efficiency only**: to skip work that somebody is probably doing already, where a second run costs time and
/// nothing else. Now and then two will run at once.
///
/// They yield no token, so nothing fenced can be written with one:
///
/// ```compile_fail,E0599
/// # async fn write(loose: idempotency::LooseLease<idempotency_memory::MemoryLeases>) {
/// let token = loose.token();
/// # }
/// ```
///
/// Where two runs do harm, take a [`Leaser`] and check the token where the writes arrive.
///
/// ```
/// use idempotency::{LeaseSettings, LooseLeases, Resource, Taken};
/// use idempotency_memory::MemoryLeases;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let loose = LooseLeases::new(MemoryLeases::new(), LeaseSettings::default());
/// let thumbnails = Resource::parse("thumbnails of 2026-10")?;
/// let mut made = 0;
/// if let Taken::Yours(lease) = loose.try_acquire(&thumbnails).await? {
///     made += 1; // whoever is not told so does it again, and that is all
///     lease.release().await?;
/// }
/// assert_eq!(made, 1);
/// # Ok(())
/// # }
/// ```
pub struct LooseLeases<L>(Leaser<L>);

impl<L: Leases> LooseLeases<L> {
    /// Takes loose leases that are kept by `leases`.
    #[must_use]
    pub fn new(leases: L, settings: LeaseSettings) -> Self {
        Self(Leaser::new(leases, settings))
    }

    /// Takes the lease if it is free.
    ///
    /// # Errors
    /// As [`Leaser::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Leaser::try_acquire`].
    pub async fn try_acquire(&self, resource: &Resource) -> Result<Taken<LooseLease<L>>, StoreError> {
        self.acquire(resource, Duration::ZERO).await
    }

    /// Takes the lease, waiting for it at most so long.
    ///
    /// # Errors
    /// As [`Leaser::acquire`].
    ///
    /// # Cancel safety
    /// As [`Leaser::acquire`].
    pub async fn acquire(&self, resource: &Resource, wait: Duration) -> Result<Taken<LooseLease<L>>, StoreError> {
        Ok(self.0.take(resource, wait).await?.map(LooseLease))
    }

    /// Waits for what goes on in the background: [`Leaser::drain`].
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    #[must_use = "something may be left"]
    pub async fn drain(&self, limit: Duration) -> bool {
        self.0.drain(limit).await
    }
}

impl<L> Clone for LooseLeases<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L> fmt::Debug for LooseLeases<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LooseLeases").field(&self.0).finish()
    }
}

/// A loose lease in this process's hands, without a token. Renewed and given back as a
/// [`HeldLease`](crate::HeldLease) is.
pub struct LooseLease<L: Leases>(Hold<L>);

impl<L: Leases> LooseLease<L> {
    /// What is held.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.0.shared().resource()
    }

    /// How long the lease still runs, as far as this process can know.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.shared().time_left()
    }

    /// Whether the lease is known to be lost, or its time is over.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.shared().is_lost()
    }

    /// Waits until it is.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped and called again.
    pub async fn lost(&self) {
        self.0.shared().lost().await;
    }

    /// Asks the store whether it is still held, by renewing it.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say; that is not a loss.
    ///
    /// # Cancel safety
    /// Dropped: it may or may not be renewed.
    pub async fn still_held(&self) -> Result<bool, StoreError> {
        self.0.still_held().await
    }

    /// Gives it back.
    ///
    /// # Errors
    /// As [`HeldLease::release`](crate::HeldLease::release).
    ///
    /// # Cancel safety
    /// Dropped: it goes on in the background.
    pub async fn release(self) -> Result<Released, StoreError> {
        self.0.release().await
    }
}

impl<L: Leases> fmt::Debug for LooseLease<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.shared().fmt(f)
    }
}
