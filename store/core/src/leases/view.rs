//! A lease as the work under it sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::held::LeaseLost;
use super::hold::Shared;
use crate::{FenceTicket, FencingToken, Resource};

/// What work under a lease may know and use: everything but giving it back. Cheap to clone. When its guard is gone, it is lost.
#[derive(Clone)]
pub struct LeaseView(Arc<Shared>);

impl LeaseView {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// What is held.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.0.resource()
    }

    /// The token to write with: see [`HeldLease::token`](crate::HeldLease::token).
    ///
    /// # Errors
    /// [`LeaseLost`] when the lease is lost, over, or given back.
    pub fn token(&self) -> Result<FencingToken, LeaseLost> {
        self.0.token()
    }

    /// What a fence is opened with: see [`HeldLease::ticket`](crate::HeldLease::ticket).
    ///
    /// # Errors
    /// As [`LeaseView::token`].
    pub fn ticket(&self) -> Result<FenceTicket, LeaseLost> {
        self.0.ticket()
    }

    /// How long the lease still runs: see [`HeldLease::time_left`](crate::HeldLease::time_left).
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.time_left()
    }

    /// Whether the lease is lost, over, or given back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Waits until it is.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped and called again.
    pub async fn lost(&self) {
        self.0.lost().await;
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
