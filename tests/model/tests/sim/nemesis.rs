//! A store between its callers and the real one, which misbehaves by a seed until it is healed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use idempotency::{
    Claim, Claimed, Clock, Entry, Holder, Lease, List, Nonce, Outcome, Page, RecordId, Resolve, Resolved, Settled,
    Store, StoreError, StoreErrorKind, Swept, Timestamp,
};
use idempotency_model::ticks::ORIGIN;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use super::{Broken, Setting};

/// The runtime's time, and what it was moved by.
#[derive(Clone, Debug)]
pub(crate) struct SimClock {
    begun: Instant,
    moved: Arc<AtomicI64>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), moved: Arc::default() }
    }

    /// Moves it, also back.
    pub(crate) fn jump(&self, millis: i64) {
        self.moved.fetch_add(millis * 1000, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let now = ORIGIN.after(self.begun.elapsed());
        Timestamp::from_micros(now.micros() + self.moved.load(Ordering::SeqCst))
    }
}

/// Clones share everything.
pub(crate) struct Nemesis<S>(Arc<Inner<S>>);

struct Inner<S> {
    store: S,
    random: Mutex<StdRng>,
    healed: AtomicBool,
    setting: Setting,
    sights: Mutex<BTreeMap<&'static str, u64>>,
}

impl<S> Clone for Nemesis<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// What becomes of one operation.
enum Fate {
    /// Carried out after so long, answered after so long.
    Answered(Duration, Duration),
    /// Carried out after so long, whatever becomes of its caller, who hears an error or nothing.
    Lost(Duration, Hears),
    /// Never carried out.
    Dropped(Hears),
}

enum Hears {
    Nothing,
    Broken,
    Busy,
}

impl<S: Store + Clone> Nemesis<S> {
    pub(crate) fn new(store: S, seed: u64, setting: Setting) -> Self {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        Self(Arc::new(Inner { store, random, healed: AtomicBool::new(false), setting, sights: Mutex::default() }))
    }

    pub(crate) fn inner(&self) -> &S {
        &self.0.store
    }

    pub(crate) fn heal(&self) {
        self.0.healed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn sights(&self) -> BTreeMap<&'static str, u64> {
        self.0.sights.lock().clone()
    }

    fn is(&self, broken: Broken) -> bool {
        self.0.setting.broken == Some(broken)
    }

    fn see(&self, sight: &'static str) {
        *self.0.sights.lock().entry(sight).or_default() += 1;
    }

    fn fate(&self) -> Fate {
        let mut random = self.0.random.lock();
        let short = Duration::from_millis(random.random_range(0..50));
        if self.0.healed.load(Ordering::SeqCst) {
            return Fate::Answered(Duration::ZERO, short);
        }
        let long = Duration::from_millis(random.random_range(0..5_000));
        match random.random_range(0..12) {
            0 => Fate::Lost(long, Hears::Nothing),
            1 => Fate::Lost(short, Hears::Nothing),
            2 if self.0.setting.late_first_tries => Fate::Lost(long, Hears::Broken),
            2 => Fate::Lost(Duration::ZERO, Hears::Broken),
            3 => Fate::Dropped(Hears::Nothing),
            4 => Fate::Dropped(Hears::Broken),
            5 => Fate::Dropped(Hears::Busy),
            6 => Fate::Answered(short, long),
            _ => Fate::Answered(short, short),
        }
    }

    async fn run<T, F>(&self, twice: bool, call: impl Fn(S) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let fate = self.fate();
        let again = Duration::from_millis(self.0.random.lock().random_range(0..20_000));
        if twice && !self.0.healed.load(Ordering::SeqCst) && self.0.random.lock().random_ratio(1, 10) {
            self.see("carried out twice");
            tokio::spawn(late(again, call(self.0.store.clone())));
        }
        match fate {
            Fate::Answered(before, after) => {
                let carried_out = tokio::spawn(late(before, call(self.0.store.clone())));
                let answer = carried_out.await.unwrap_or_else(|_| Err(error(StoreErrorKind::Timeout)));
                sleep(after).await;
                answer
            }
            Fate::Lost(before, hears) => {
                self.see(if before > Duration::from_secs(1) { "carried out late" } else { "answer lost" });
                let carried_out = tokio::spawn(late(before, call(self.0.store.clone())));
                if matches!(hears, Hears::Broken) && before.is_zero() {
                    drop(carried_out.await);
                }
                hears.wait().await
            }
            Fate::Dropped(hears) => hears.wait().await,
        }
    }
}

impl Hears {
    async fn wait<T>(self) -> Result<T, StoreError> {
        match self {
            Self::Nothing => std::future::pending().await,
            Self::Broken => Err(error(StoreErrorKind::Unavailable)),
            Self::Busy => Err(error(StoreErrorKind::Busy)),
        }
    }
}

fn error(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "the nemesis")
}

async fn late<T>(by: Duration, call: impl Future<Output = T>) -> T {
    sleep(by).await;
    call.await
}

impl<S: Store + Clone> Store for Nemesis<S> {
    async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        let mut claim = claim.clone();
        if self.is(Broken::NoncesIgnored) {
            claim.nonce = Nonce::random();
        }
        if self.is(Broken::InFlightForgotten) {
            let entry = self.0.store.inspect(&claim.id).await?;
            let gone = entry.filter(|entry| entry.state == idempotency::State::InDoubt).and_then(|entry| entry.token);
            if let Some(token_seen) = gone {
                let verdict = idempotency::ResolveVerdict::DidNotHappen { fence_token: None };
                let (who, why) = (String::new(), String::new());
                let _ = self.0.store.resolve(&Resolve { id: claim.id, token_seen, verdict, who, why }).await?;
            }
        }
        self.run(false, move |store| {
            let claim = claim.clone();
            async move { store.claim(&claim).await }
        })
        .await
    }

    async fn renew(&self, holder: &Holder, lease: Lease) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.run(true, move |store| async move { store.renew(&holder, lease).await }).await
    }

    async fn complete(&self, holder: &Holder, outcome: &Outcome) -> Result<Settled, StoreError> {
        let (holder, outcome) = (*holder, outcome.clone());
        self.run(true, move |store| {
            let outcome = outcome.clone();
            async move { store.complete(&holder, &outcome).await }
        })
        .await
    }

    async fn release(&self, holder: &Holder, dead_for: Duration) -> Result<Settled, StoreError> {
        let holder = *holder;
        self.run(true, move |store| async move { store.release(&holder, dead_for).await }).await
    }

    async fn mark_in_doubt(&self, holder: &Holder, response: Option<&Outcome>) -> Result<Settled, StoreError> {
        let (holder, response) = (*holder, response.cloned());
        self.run(true, move |store| {
            let response = response.clone();
            async move { store.mark_in_doubt(&holder, response.as_ref()).await }
        })
        .await
    }

    async fn abandon(&self, id: &RecordId, nonce: Nonce, dead_for: Duration) -> Result<(), StoreError> {
        if self.is(Broken::NoAbandon) {
            return Ok(());
        }
        let (id, dead_for) = (*id, if self.is(Broken::NoDeadNonces) { Duration::ZERO } else { dead_for });
        self.run(true, move |store| async move { store.abandon(&id, nonce, dead_for).await }).await
    }

    async fn resolve(&self, resolve: &Resolve) -> Result<Resolved, StoreError> {
        self.0.store.resolve(resolve).await
    }

    async fn inspect(&self, id: &RecordId) -> Result<Option<Entry>, StoreError> {
        let id = *id;
        self.run(false, move |store| async move { store.inspect(&id).await }).await
    }

    async fn list(&self, list: &List) -> Result<Page, StoreError> {
        self.0.store.list(list).await
    }

    async fn sweep(&self, limit: usize) -> Result<Swept, StoreError> {
        self.0.store.sweep(limit).await
    }
}
