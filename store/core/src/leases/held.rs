//! A lease for correctness.

use std::fmt;
use std::time::Duration;

use super::contract::Leases;
use super::hold::Hold;
use super::view::LeaseView;
use crate::{FenceTicket, FencingToken, Resource, StoreError};

/// A lease in this process's hands, with the token that its writes carry. Renewed at every third of its length until it is
/// given back, lost, or [held for too long](crate::LeaseSettings::max_hold).
///
/// Give it back with [`release`](Self::release). Dropped, it is given back in the background; never left to its lease, which
/// would keep everybody out for nothing.
pub struct HeldLease<L: Leases>(Hold<L>);

impl<L: Leases> HeldLease<L> {
    pub(super) fn new(hold: Hold<L>) -> Self {
        Self(hold)
    }

    /// What is held.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.0.shared().resource()
    }

    /// The token to write with: larger than that of every holder before. Ask for it right before it is used: what was kept from
    /// before is an old token once the lease is lost, and only the receiver can tell.
    ///
    /// # Errors
    /// [`LeaseLost`] when the lease is lost or its time is over.
    pub fn token(&self) -> Result<FencingToken, LeaseLost> {
        self.0.shared().token()
    }

    /// What a fence is opened with: the token, who holds it, and that leases minted it.
    ///
    /// # Errors
    /// As [`HeldLease::token`].
    pub fn ticket(&self) -> Result<FenceTicket, LeaseLost> {
        self.0.shared().ticket()
    }

    /// How long the lease still runs, as far as this process can know: counted from before the asking or the last renewal
    /// was sent, on a clock that runs through suspend. Zero once it is lost, for ever.
    ///
    /// This is a belief. Only a fence at the receiver of a write can enforce it.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.shared().time_left()
    }

    /// Whether the lease is known to be lost, or its time is over.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.shared().is_lost()
    }

    /// Waits until the lease is lost: somebody took over, or its time ran out without a renewal.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped and called again.
    pub async fn lost(&self) {
        self.0.shared().lost().await;
    }

    /// For the work under it: everything but giving it back.
    #[must_use]
    pub fn view(&self) -> LeaseView {
        LeaseView::new(self.0.shared().clone())
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

    /// Takes a token above one that a fence has seen, for the same holder and the same lease: heals a source of tokens that
    /// lost its memory. Whoever does not hold the lease any more gets none.
    ///
    /// # Errors
    /// [`RaiseError::Lost`] when the lease is lost; [`RaiseError::Store`] when the store could not say, of kind
    /// [`Refused`](crate::StoreErrorKind::Refused) when `above` is more than an hour ahead of the store's clock.
    ///
    /// # Cancel safety
    /// Dropped: the store may or may not have raised it; the next renewal finds out.
    pub async fn raise_above(&self, above: FencingToken) -> Result<FencingToken, RaiseError> {
        self.0.raise_above(above).await
    }

    /// Gives it back, so that the next one need not wait for the lease to end.
    ///
    /// # Errors
    /// [`StoreError`] when the store could not say whether it is given back. That goes on in the background until it answers, or
    /// for two leases, after which nobody holds it.
    ///
    /// # Cancel safety
    /// Dropped: it goes on in the background.
    pub async fn release(self) -> Result<Released, StoreError> {
        self.0.release().await
    }
}

impl<L: Leases> fmt::Debug for HeldLease<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.shared().fmt(f)
    }
}

/// What came of giving a lease back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was ours until now.
    Released,
    /// It was not ours any more: somebody took over after it had ended, or it was forgotten.
    NotHeld,
}

/// The lease is lost, over, or given back: there is no token to write with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is lost")]
pub struct LeaseLost;

/// Why there is no larger token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RaiseError {
    /// The lease is lost.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// The store could not say, or refuses such a token.
    #[error(transparent)]
    Store(#[from] StoreError),
}
