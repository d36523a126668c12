//! A store chosen at run time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::watch::Watch;
use crate::{
    Claim, Claimed, Entry, Holder, Lease, List, Nonce, Outcome, Page, RecordId, Resolve, Resolved, Settled, Store,
    StoreError, Swept,
};

/// Any store behind one type, for a backend chosen at run time from a URL. Costs one allocation an
/// operation. Clones share the store.
#[derive(Clone)]
pub struct BoxStore(Arc<dyn ErasedStore>);

impl BoxStore {
    /// Boxes a store.
    pub fn new<S: Store>(store: S) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for BoxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxStore")
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The dyn compatible twin of [`Store`]. Its methods have other names, or calls would be ambiguous.
trait ErasedStore: Send + Sync {
    fn claim_boxed<'a>(&'a self, claim: &'a Claim) -> Boxed<'a, Claimed>;
    fn renew_boxed<'a>(&'a self, holder: &'a Holder, lease: Lease) -> Boxed<'a, Settled>;
    fn complete_boxed<'a>(&'a self, holder: &'a Holder, outcome: &'a Outcome) -> Boxed<'a, Settled>;
    fn release_boxed<'a>(&'a self, holder: &'a Holder, dead_for: Duration) -> Boxed<'a, Settled>;
    fn mark_in_doubt_boxed<'a>(&'a self, holder: &'a Holder, response: Option<&'a Outcome>) -> Boxed<'a, Settled>;
    fn abandon_boxed<'a>(&'a self, id: &'a RecordId, nonce: Nonce, dead_for: Duration) -> Boxed<'a, ()>;
    fn resolve_boxed<'a>(&'a self, resolve: &'a Resolve) -> Boxed<'a, Resolved>;
    fn watch_boxed(&self, id: &RecordId) -> Watch;
    fn inspect_boxed<'a>(&'a self, id: &'a RecordId) -> Boxed<'a, Option<Entry>>;
    fn list_boxed<'a>(&'a self, list: &'a List) -> Boxed<'a, Page>;
    fn sweep_boxed(&self, limit: usize) -> Boxed<'_, Swept>;
}

impl<S: Store> ErasedStore for S {
    fn claim_boxed<'a>(&'a self, claim: &'a Claim) -> Boxed<'a, Claimed> {
        Box::pin(self.claim(claim))
    }
    fn renew_boxed<'a>(&'a self, holder: &'a Holder, lease: Lease) -> Boxed<'a, Settled> {
        Box::pin(self.renew(holder, lease))
    }
    fn complete_boxed<'a>(&'a self, holder: &'a Holder, outcome: &'a Outcome) -> Boxed<'a, Settled> {
        Box::pin(self.complete(holder, outcome))
    }
    fn release_boxed<'a>(&'a self, holder: &'a Holder, dead_for: Duration) -> Boxed<'a, Settled> {
        Box::pin(self.release(holder, dead_for))
    }
    fn mark_in_doubt_boxed<'a>(&'a self, holder: &'a Holder, response: Option<&'a Outcome>) -> Boxed<'a, Settled> {
        Box::pin(self.mark_in_doubt(holder, response))
    }
    fn abandon_boxed<'a>(&'a self, id: &'a RecordId, nonce: Nonce, dead_for: Duration) -> Boxed<'a, ()> {
        Box::pin(self.abandon(id, nonce, dead_for))
    }
    fn resolve_boxed<'a>(&'a self, resolve: &'a Resolve) -> Boxed<'a, Resolved> {
        Box::pin(self.resolve(resolve))
    }
    fn watch_boxed(&self, id: &RecordId) -> Watch {
        self.watch(id)
    }
    fn inspect_boxed<'a>(&'a self, id: &'a RecordId) -> Boxed<'a, Option<Entry>> {
        Box::pin(self.inspect(id))
    }
    fn list_boxed<'a>(&'a self, list: &'a List) -> Boxed<'a, Page> {
        Box::pin(self.list(list))
    }
    fn sweep_boxed(&self, limit: usize) -> Boxed<'_, Swept> {
        Box::pin(self.sweep(limit))
    }
}

impl Store for BoxStore {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        self.0.claim_boxed(claim).await
    }
    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        self.0.renew_boxed(holder, lease).await
    }
    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        self.0.complete_boxed(holder, outcome).await
    }
    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        self.0.release_boxed(holder, dead_for).await
    }
    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        self.0.mark_in_doubt_boxed(holder, response).await
    }
    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        self.0.abandon_boxed(id, nonce, dead_for).await
    }
    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.0.resolve_boxed(resolve).await
    }
    fn watch(&self, id: &RecordId) -> Watch {
        self.0.watch_boxed(id)
    }
    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        self.0.inspect_boxed(id).await
    }
    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.0.list_boxed(list).await
    }
    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.0.sweep_boxed(limit).await
    }
}
