//! One run under one claim, as its handler sees it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::belief::Belief;
use crate::outbound::OpenSteps;
use crate::time::BootInstant;
use crate::transaction::{Attached, TransactionState};
use crate::{FencingToken, Grant, Holder, Key, Lease, Nonce, RecordId, Recovery, Settings};

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
    fresh_place: AtomicUsize,
    serial: u64,
    /// Taken while a renewal is under way.
    renewing: tokio::sync::Mutex<()>,
    transaction: AtomicU8,
    transaction_limit: Lease,
    /// What is recorded by its transaction, in bytes.
    outcome_size: AtomicUsize,
    store_timeout: Duration,
    tracker: TaskTracker,
    attached: OnceLock<Attached>,
    steps: OpenSteps,
}

impl Attempt {
    pub(crate) fn new(
        key: Key,
        (id, nonce): (RecordId, Nonce),
        grant: &Grant,
        asked: BootInstant,
        serial: u64,
        (settings, tracker): (&Settings, &TaskTracker),
    ) -> Self {
        Self(Arc::new(Inner {
            key,
            holder: Holder { id, token: grant.token, nonce },
            number: grant.attempt,
            recovery: grant.recovery,
            started: Instant::now(),
            belief: Belief::new(asked, grant.lease_left),
            finished: AtomicBool::new(false),
            renewal_due: AtomicU64::new(0),
            fresh_place: AtomicUsize::new(0),
            serial,
            renewing: tokio::sync::Mutex::const_new(()),
            transaction: AtomicU8::new(TransactionState::None as u8),
            transaction_limit: settings.transaction_limit_setting(),
            outcome_size: AtomicUsize::new(0),
            store_timeout: settings.store_timeout,
            tracker: tracker.clone(),
            attached: OnceLock::new(),
            steps: OpenSteps::default(),
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

    /// How far the transaction came that a store [began](crate::transaction::begin) for this attempt.
    #[must_use]
    pub fn transaction(&self) -> TransactionState {
        TransactionState::from_number(self.0.transaction.load(Ordering::Acquire))
    }

    /// Keeps something of the layer that made this attempt for those who record its answer. The first one stays.
    pub fn attach<T: Any + Send + Sync>(&self, what: Arc<T>) {
        let _ = self.0.attached.set(what);
    }

    /// What was attached, if it is of this type.
    #[must_use]
    pub fn attached<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.attached.get()?.downcast_ref()
    }

    /// Whether a step of an [outbound guard](crate::outbound) has begun under this attempt, or was met by it, that is not known to have
    /// failed for certain. Then its effect may have happened, and its key must not be free under [`Recovery::Hold`].
    #[must_use]
    pub fn has_open_step(&self) -> bool {
        self.0.steps.is_any()
    }

    /// Whether its key may be free: not under `Hold` while a step may have had its effect.
    pub(crate) fn may_release(&self) -> bool {
        self.recovery() == Recovery::Rerun || !self.has_open_step()
    }

    pub(crate) fn steps(&self) -> &OpenSteps {
        &self.0.steps
    }

    /// An outcome that is on record stays there, whatever becomes of another transaction of this attempt.
    pub(crate) fn set_transaction(&self, state: TransactionState) {
        let unless_committed = |now| (now != TransactionState::Committed as u8).then_some(state as u8);
        let _ = self.0.transaction.fetch_update(Ordering::AcqRel, Ordering::Acquire, unless_committed);
    }

    /// Its transaction is to record so many bytes.
    pub(crate) fn set_outcome_size(&self, bytes: usize) {
        self.0.outcome_size.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes its transaction recorded; 0 when it committed nothing.
    pub(crate) fn committed_size(&self) -> usize {
        let committed = self.transaction() == TransactionState::Committed;
        if committed { self.0.outcome_size.load(Ordering::Relaxed) } else { 0 }
    }

    /// How long a transaction of this attempt may take.
    pub(crate) fn transaction_limit(&self) -> Lease {
        self.0.transaction_limit
    }

    pub(crate) fn store_timeout(&self) -> Duration {
        self.0.store_timeout
    }

    /// How long an answer within the transaction is waited for: as long as the lease lasts, and for one store timeout in any case.
    pub(crate) fn patience(&self) -> Duration {
        self.time_left().max(self.0.store_timeout)
    }

    /// Counts the work that a drain waits for.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.0.tracker
    }

    /// Sees to it that nobody renews it any more, and waits for a renewal that is under way.
    pub(crate) async fn stop_renewal(&self) {
        self.finish();
        drop(self.0.renewing.lock().await);
    }

    pub(crate) fn renewing(&self) -> &tokio::sync::Mutex<()> {
        &self.0.renewing
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

    /// Its place among those that the renewing task has not yet seen, if it is one of them. Under the lock on these.
    pub(crate) fn fresh_place(&self) -> usize {
        self.0.fresh_place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_fresh_place(&self, place: usize) {
        self.0.fresh_place.store(place, Ordering::Relaxed);
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
