//! Renewal of the leases of running attempts: one task per engine and runtime, so that a request that ends before a third
//! of its lease costs no spawn and no timer. Each task renews whatever is due: a runtime that stands still, or ends, keeps none of another's
//! attempts from it.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::engine::Inner;
use crate::time::BootInstant;
use crate::{Attempt, Settled, Store};

/// The attempts that run, in the order in which their renewals are due.
pub(crate) struct Renewals {
    base: Instant,
    queue: Mutex<Queue>,
    sooner: Arc<Notify>,
}

#[derive(Default)]
struct Queue {
    /// Those that came since the task last looked, in no order: most end before it looks again.
    fresh: Vec<Attempt>,
    /// By due time in microseconds since `base`, and serial number.
    due: BTreeMap<(u64, u64), Attempt>,
    /// Of each runtime that has asked. Nearly always there is one.
    tasks: Vec<(runtime::Id, JoinHandle<()>)>,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        Self { base: Instant::now(), queue: Mutex::default(), sooner: Arc::default() }
    }

    /// Sees to it that somebody renews. Must be called in a tokio runtime, and before the work that is to be renewed: a task that was
    /// just spawned waits for this worker alone, and work that blocks it would block its own renewal.
    pub(crate) async fn ensure_running<St: Store>(&self, engine: &Weak<Inner<St>>, every: Duration) {
        let spawned = {
            let runtime = Handle::current();
            let mut queue = self.queue.lock();
            let missing = !queue.tasks.iter().any(|(id, task)| *id == runtime.id() && !task.is_finished());
            if missing {
                queue.tasks.retain(|(_, task)| !task.is_finished());
                let task = runtime.spawn(renew_when_due(engine.clone(), every));
                queue.tasks.push((runtime.id(), task));
            }
            missing
        };
        if spawned {
            tokio::task::yield_now().await;
        }
    }

    /// Keeps `attempt` renewed until [`Renewals::stop`].
    pub(crate) fn start(&self, attempt: &Attempt, every: Duration) {
        attempt.set_renewal_due(self.micros(attempt.started() + every));
        let mut queue = self.queue.lock();
        attempt.set_fresh_place(queue.fresh.len());
        queue.fresh.push(attempt.clone());
    }

    /// The attempt is over.
    pub(crate) fn stop(&self, attempt: &Attempt) {
        let mut queue = self.queue.lock();
        attempt.finish();
        let place = attempt.fresh_place();
        if queue.fresh.get(place).is_none_or(|fresh| fresh.serial() != attempt.serial()) {
            queue.due.remove(&(attempt.renewal_due(), attempt.serial()));
            return;
        }
        queue.fresh.swap_remove(place);
        if let Some(moved) = queue.fresh.get(place) {
            moved.set_fresh_place(place);
        }
    }

    /// Puts an attempt back after a renewal, unless it ended meanwhile.
    fn again(&self, attempt: &Attempt, at: Instant) {
        let mut queue = self.queue.lock();
        if !attempt.is_finished() {
            attempt.set_renewal_due(self.micros(at));
            queue.put(attempt.clone());
            self.sooner.notify_one();
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_micros()).unwrap_or(u64::MAX)
    }

    /// When the first one is due of all that have come by now.
    fn first_due(&self) -> Option<Instant> {
        let mut queue = self.queue.lock();
        while let Some(attempt) = queue.fresh.pop() {
            queue.put(attempt);
        }
        queue.due.keys().next().map(|(due, _)| self.base + Duration::from_micros(*due))
    }

    fn take_due(&self) -> Vec<Attempt> {
        let now = self.micros(Instant::now());
        let mut queue = self.queue.lock();
        let later = queue.due.split_off(&(now + 1, 0));
        std::mem::replace(&mut queue.due, later).into_values().collect()
    }
}

impl Queue {
    fn put(&mut self, attempt: Attempt) {
        self.due.insert((attempt.renewal_due(), attempt.serial()), attempt);
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        self.queue.get_mut().tasks.iter().for_each(|(_, task)| task.abort());
    }
}

/// Looks at least every half interval, so that a new attempt, due after a whole one, need not wake anybody, nor stand in any order
/// before. It keeps no engine alive.
async fn renew_when_due<St: Store>(engine: Weak<Inner<St>>, every: Duration) {
    loop {
        let (until, sooner) = {
            let Some(inner) = engine.upgrade() else { return };
            let look_again = Instant::now() + every / 2;
            let until = inner.renewals.first_due().map_or(look_again, |due| due.min(look_again));
            (until, Arc::clone(&inner.renewals.sooner))
        };
        let _ = timeout_at(until, sooner.notified()).await;
        let Some(inner) = engine.upgrade() else { return };
        for attempt in inner.renewals.take_due() {
            let renewal = Renewal { inner: Arc::clone(&inner), attempt, is_over: false };
            inner.tracker.spawn(renewal.renew());
        }
    }
}

/// One, that is due. Dropped with its runtime, or by a panic of the store, before it is over, it is due again.
struct Renewal<St> {
    inner: Arc<Inner<St>>,
    attempt: Attempt,
    is_over: bool,
}

impl<St> Drop for Renewal<St> {
    fn drop(&mut self) {
        if !self.is_over {
            self.inner.renewals.again(&self.attempt, Instant::now() + self.inner.settings.lease.length() / 10);
        }
    }
}

impl<St: Store> Renewal<St> {
    async fn renew(mut self) {
        let next = self.once().await;
        self.is_over = true;
        if let Some(pause) = next {
            self.inner.renewals.again(&self.attempt, Instant::now() + pause);
        }
    }

    /// When the next one is due, if there is to be one.
    async fn once(&self) -> Option<Duration> {
        let Self { inner, attempt, .. } = self;
        let settings = &inner.settings;
        if attempt.started().elapsed() >= settings.max_run {
            tracing::warn!(?attempt, "ran longer than max run; its lease is renewed no more");
            metrics::counter!("idempotency_max_run_reached_total").increment(1);
            return None;
        }
        let _turn = attempt.renewing().lock().await;
        if attempt.is_finished() {
            return None;
        }
        let asked = BootInstant::now();
        let lease = settings.lease;
        match inner.within_timeout(inner.store.renew(attempt.holder(), lease)).await {
            Ok(Settled::Applied | Settled::AlreadyApplied) => {
                attempt.extend(asked, lease.length());
                Some(settings.renewal_interval())
            }
            Ok(Settled::Superseded) if attempt.is_finished() => None,
            Ok(Settled::Superseded) => {
                tracing::warn!(?attempt, "the lease was lost");
                metrics::counter!("idempotency_leases_lost_total").increment(1);
                attempt.lose();
                None
            }
            // A renewal that fails or times out is not a loss; a loss is an answer.
            Err(_) => {
                metrics::counter!("idempotency_renewals_failed_total").increment(1);
                Some(lease.length() / 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::{FencingToken, Grant, Key, Nonce, RecordId, Recovery, ScopeId, Settings, Timestamp};

    const EVERY: Duration = Duration::from_secs(10);

    fn attempt(serial: u64) -> Attempt {
        let key = Key::parse("k").unwrap();
        let named = (RecordId::new(&ScopeId::global(), &key), Nonce::random());
        let token = FencingToken::after(None, Timestamp::from_micros(1));
        let grant =
            Grant { token, attempt: 1, lease_left: EVERY * 3, recovery: Recovery::Hold, possible_escape: false };
        Attempt::new(key, named, &grant, BootInstant::now(), serial, (&Settings::default(), &TaskTracker::new()))
    }

    /// The serial numbers of those that the queue keeps.
    fn kept(renewals: &Renewals) -> Vec<u64> {
        let queue = renewals.queue.lock();
        let mut kept: Vec<u64> = queue.fresh.iter().chain(queue.due.values()).map(Attempt::serial).collect();
        kept.sort_unstable();
        kept
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_ends_is_kept_no_longer_and_the_others_are() {
        let renewals = Renewals::new();
        let attempts: Vec<Attempt> = (0..6).map(attempt).collect();
        let (first, later) = attempts.split_at(5);
        first.iter().for_each(|attempt| renewals.start(attempt, EVERY));
        renewals.stop(&attempts[1]);
        renewals.stop(&attempts[4]); // which has its place by now
        assert_eq!(kept(&renewals), [0, 2, 3]);

        // Now they stand in their order, and one that comes does not yet.
        assert_eq!(renewals.first_due(), Some(renewals.base + EVERY));
        later.iter().for_each(|attempt| renewals.start(attempt, EVERY));
        renewals.stop(&attempts[0]);
        assert_eq!(kept(&renewals), [2, 3, 5]);
        tokio::time::advance(EVERY).await;
        renewals.first_due();
        assert_eq!(renewals.take_due().len(), 3);
        assert!(kept(&renewals).is_empty());
    }
}
