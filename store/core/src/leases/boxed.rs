//! Leases chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::contract::{Acquired, Ask, LeaseEntry, LeaseHolder, Leases};
use crate::watch::Watch;
use crate::{Lease, Nonce, Resource, Settled, StoreError};

/// Any [`Leases`] behind one type, for a backend chosen at run time from a URL. Costs one allocation an operation. Clones
/// share the leases.
#[derive(Clone)]
pub struct BoxLeases(Arc<dyn ErasedLeases>);

impl BoxLeases {
    /// Boxes leases.
    pub fn new<L: Leases>(leases: L) -> Self {
        Self(Arc::new(leases))
    }
}

impl fmt::Debug for BoxLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxLeases")
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The dyn compatible twin of [`Leases`]. Its methods have other names, or calls would be ambiguous.
trait ErasedLeases: Send + Sync {
    fn try_acquire_boxed<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Acquired>;
    fn renew_boxed<'a>(&'a self, holder: &'a LeaseHolder, lease: Lease) -> Boxed<'a, Settled>;
    fn release_boxed<'a>(&'a self, holder: &'a LeaseHolder, dead_for: Duration) -> Boxed<'a, Settled>;
    fn abandon_boxed<'a>(&'a self, resource: &'a Resource, nonce: Nonce, dead_for: Duration) -> Boxed<'a, ()>;
    fn watch_boxed(&self, resource: &Resource) -> Watch;
    fn inspect_boxed<'a>(&'a self, resource: &'a Resource) -> Boxed<'a, Option<LeaseEntry>>;
    fn sweep_boxed(&self, limit: usize) -> Boxed<'_, usize>;
}

impl<L: Leases> ErasedLeases for L {
    fn try_acquire_boxed<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Acquired> {
        Box::pin(self.try_acquire(ask))
    }
    fn renew_boxed<'a>(&'a self, holder: &'a LeaseHolder, lease: Lease) -> Boxed<'a, Settled> {
        Box::pin(self.renew(holder, lease))
    }
    fn release_boxed<'a>(&'a self, holder: &'a LeaseHolder, dead_for: Duration) -> Boxed<'a, Settled> {
        Box::pin(self.release(holder, dead_for))
    }
    fn abandon_boxed<'a>(&'a self, resource: &'a Resource, nonce: Nonce, dead_for: Duration) -> Boxed<'a, ()> {
        Box::pin(self.abandon(resource, nonce, dead_for))
    }
    fn watch_boxed(&self, resource: &Resource) -> Watch {
        self.watch(resource)
    }
    fn inspect_boxed<'a>(&'a self, resource: &'a Resource) -> Boxed<'a, Option<LeaseEntry>> {
        Box::pin(self.inspect(resource))
    }
    fn sweep_boxed(&self, limit: usize) -> Boxed<'_, usize> {
        Box::pin(self.sweep(limit))
    }
}

impl Leases for BoxLeases {
    async fn try_acquire(&self, ask: &Ask) -> Result<Acquired, StoreError> {
        self.0.try_acquire_boxed(ask).await
    }
    async fn renew(&self, holder: &LeaseHolder, lease: Lease) -> Result<Settled, StoreError> {
        self.0.renew_boxed(holder, lease).await
    }
    async fn release(&self, holder: &LeaseHolder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.0.release_boxed(holder, dead_for).await
    }
    async fn abandon(&self, resource: &Resource, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.0.abandon_boxed(resource, nonce, dead_for).await
    }
    fn watch(&self, resource: &Resource) -> Watch {
        self.0.watch_boxed(resource)
    }
    async fn inspect(&self, resource: &Resource) -> Result<Option<LeaseEntry>, StoreError> {
        self.0.inspect_boxed(resource).await
    }
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.sweep_boxed(limit).await
    }
}
