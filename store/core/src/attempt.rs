//! One run under one claim, as its handler sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::belief::Belief;
use crate::time::BootInstant;
use crate::{FencingToken, Grant, Holder, Key, Nonce, RecordId, Recovery};

/// One run under one claim: what a handler may know and use. Cheap to clone.
#[derive(Clone)]
pub struct Attempt(Arc<Inner>);

struct Inner {
    key: Key,
    holder: Holder,
    number: u32,
    recovery: Recovery,
    started: Instant,
    belief: Belief,
    finished: AtomicBool,
    renewal_due: AtomicU64,
    serial: u64,
}

impl Attempt {
    pub(crate) fn new(key: Key, id: RecordId, nonce: Nonce, grant: &Grant, asked: BootInstant, serial: u64) -> Self {
        Self(Arc::new(Inner {
            key,
            holder: Holder { id, token: grant.token, nonce },
            number: grant.attempt,
            recovery: grant.recovery,
            started: Instant::now(),
            belief: Belief::new(asked, grant.lease_left),
            finished: AtomicBool::new(false),
            renewal_due: AtomicU64::new(0),
            serial,
        }))
    }

    /// The key it runs for.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.0.key
    }

    /// Which record it runs for.
    #[must_use]
    pub fn record_id(&self) -> &RecordId {
        &self.0.holder.id
    }

    /// The token of this attempt: larger than that of every attempt before it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.0.holder.token
    }

    /// Which run this is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// What becomes of this attempt if its outcome is not known.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        self.0.recovery
    }

    /// What settles this attempt at the store.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.0.holder
    }

    /// How long the lease still runs, as far as this process can know: counted from before the claim or the last
    /// renewal was sent, on a clock that runs through suspend. Zero once it is lost.
    ///
    /// This is a belief. Only a fence at the receiver of a write can enforce it.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.belief.time_left()
    }

    /// Whether the lease is known to be lost or its time is over.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.time_left().is_zero()
    }

    /// Waits until the lease is lost: somebody took over, or its time ran out without a renewal.
    ///
    /// # Cancel safety
    /// Holds nothing; may be dropped and called again.
    pub async fn lost(&self) {
        self.0.belief.lost().await;
    }

    pub(crate) fn lose(&self) {
        self.0.belief.lose();
    }

    pub(crate) fn extend(&self, asked: BootInstant, lease: Duration) {
        self.0.belief.extend(asked, lease);
    }

    pub(crate) fn started(&self) -> Instant {
        self.0.started
    }

    pub(crate) fn finish(&self) {
        self.0.finished.store(true, Ordering::Release);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.finished.load(Ordering::Acquire)
    }

    pub(crate) fn serial(&self) -> u64 {
        self.0.serial
    }

    pub(crate) fn renewal_due(&self) -> u64 {
        self.0.renewal_due.load(Ordering::Acquire)
    }

    pub(crate) fn set_renewal_due(&self, due: u64) {
        self.0.renewal_due.store(due, Ordering::Release);
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("record_id", self.record_id())
            .field("token", &self.token())
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
