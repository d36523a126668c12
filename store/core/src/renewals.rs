//! Renewal of the leases of running attempts: one task per engine, so that a request that ends before a third
//! of its lease costs no spawn and no timer.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
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
    sooner: Notify,
}

#[derive(Default)]
struct Queue {
    /// By due time in microseconds since `base`, and serial number.
    due: BTreeMap<(u64, u64), Attempt>,
    task: Option<JoinHandle<()>>,
}

impl Renewals {
    pub(crate) fn new() -> Self {
        Self { base: Instant::now(), queue: Mutex::default(), sooner: Notify::new() }
    }

    /// Sees to it that somebody renews. Must be called in a tokio runtime, and before the work that is to be renewed: a task that was
    /// just spawned waits for this worker alone, and work that blocks it would block its own renewal.
    pub(crate) async fn ensure_running<St: Store>(&self, engine: &Weak<Inner<St>>, every: Duration) {
        let spawned = {
            let mut queue = self.queue.lock();
            let missing = queue.task.as_ref().is_none_or(JoinHandle::is_finished);
            if missing {
                queue.task = Some(tokio::spawn(renew_when_due(engine.clone(), every)));
            }
            missing
        };
        if spawned {
            tokio::task::yield_now().await;
        }
    }

    /// Keeps `attempt` renewed until [`Renewals::stop`].
    pub(crate) fn start(&self, attempt: &Attempt, every: Duration) {
        let mut queue = self.queue.lock();
        self.put(&mut queue, attempt, Instant::now() + every);
    }

    /// The attempt is over.
    pub(crate) fn stop(&self, attempt: &Attempt) {
        let mut queue = self.queue.lock();
        attempt.finish();
        queue.due.remove(&(attempt.renewal_due(), attempt.serial()));
    }

    /// Puts an attempt back after a renewal, unless it ended meanwhile.
    fn again(&self, attempt: &Attempt, at: Instant) {
        let mut queue = self.queue.lock();
        if !attempt.is_finished() {
            self.put(&mut queue, attempt, at);
            self.sooner.notify_one();
        }
    }

    fn put(&self, queue: &mut Queue, attempt: &Attempt, at: Instant) {
        let due = u64::try_from(at.saturating_duration_since(self.base).as_micros()).unwrap_or(u64::MAX);
        attempt.set_renewal_due(due);
        queue.due.insert((due, attempt.serial()), attempt.clone());
    }

    fn first_due(&self) -> Option<Instant> {
        let queue = self.queue.lock();
        queue.due.keys().next().map(|(due, _)| self.base + Duration::from_micros(*due))
    }

    fn take_due(&self) -> Vec<Attempt> {
        let now = u64::try_from(self.base.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut queue = self.queue.lock();
        let later = queue.due.split_off(&(now + 1, 0));
        std::mem::replace(&mut queue.due, later).into_values().collect()
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        if let Some(task) = self.queue.get_mut().task.take() {
            task.abort();
        }
    }
}

/// Looks at least every half interval, so that a new attempt, due after a whole one, need not wake anybody.
async fn renew_when_due<St: Store>(engine: Weak<Inner<St>>, every: Duration) {
    loop {
        let Some(inner) = engine.upgrade() else { return };
        let look_again = Instant::now() + every / 2;
        let until = inner.renewals.first_due().map_or(look_again, |due| due.min(look_again));
        let _ = timeout_at(until, inner.renewals.sooner.notified()).await;
        for attempt in inner.renewals.take_due() {
            inner.tracker.spawn(renew(engine.clone(), attempt));
        }
    }
}

async fn renew<St: Store>(engine: Weak<Inner<St>>, attempt: Attempt) {
    let Some(inner) = engine.upgrade() else { return };
    let settings = &inner.settings;
    if attempt.started().elapsed() >= settings.max_run {
        tracing::warn!(?attempt, "ran longer than max run; its lease is renewed no more");
        metrics::counter!("idempotency_max_run_reached_total").increment(1);
        return;
    }
    let _turn = attempt.renewing().lock().await;
    if attempt.is_finished() {
        return;
    }
    let asked = BootInstant::now();
    let lease = settings.lease;
    match inner.within_timeout(inner.store.renew(attempt.holder(), lease)).await {
        Ok(Settled::Applied | Settled::AlreadyApplied) => {
            attempt.extend(asked, lease.length());
            inner.renewals.again(&attempt, Instant::now() + settings.renewal_interval());
        }
        Ok(Settled::Superseded) if attempt.is_finished() => {}
        Ok(Settled::Superseded) => {
            tracing::warn!(?attempt, "the lease was lost");
            metrics::counter!("idempotency_leases_lost_total").increment(1);
            attempt.lose();
        }
        // A renewal that fails or times out is not a loss; a loss is an answer.
        Err(_) => {
            metrics::counter!("idempotency_renewals_failed_total").increment(1);
            inner.renewals.again(&attempt, Instant::now() + lease.length() / 10);
        }
    }
}
