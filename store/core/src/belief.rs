//! What a holder believes about its own lease.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::time::BootInstant;

/// How long a lease still runs, as far as its holder can know: counted from before it was asked for, on a clock that runs
/// through suspend.
#[derive(Debug)]
pub(crate) struct Belief {
    /// On the boot clock, in microseconds; moved on by renewals.
    deadline: AtomicU64,
    lost: AtomicBool,
    on_loss: Notify,
}

impl Belief {
    pub(crate) fn new(asked: BootInstant, lease_left: Duration) -> Self {
        Self {
            deadline: AtomicU64::new(asked.after(lease_left).to_micros()),
            lost: AtomicBool::new(false),
            on_loss: Notify::new(),
        }
    }

    /// Zero once it is lost.
    pub(crate) fn time_left(&self) -> Duration {
        if self.lost.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let deadline = BootInstant::from_micros(self.deadline.load(Ordering::Acquire));
        deadline.since(BootInstant::now())
    }

    /// Waits until no time is left. Holds nothing; may be dropped and called again.
    pub(crate) async fn lost(&self) {
        loop {
            let loss = self.on_loss.notified();
            let left = self.time_left();
            if left.is_zero() {
                return;
            }
            let _ = timeout(left.min(LOOK_AGAIN), loss).await;
        }
    }

    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.on_loss.notify_waiters();
    }

    /// Never shortens it.
    pub(crate) fn extend(&self, asked: BootInstant, lease: Duration) {
        self.deadline.fetch_max(asked.after(lease).to_micros(), Ordering::AcqRel);
    }
}

/// A timer stands still while the machine is suspended, and the clock that counts does not.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// As in a suspend: the machine's clock goes on, and timers stand still.
    #[tokio::test(start_paused = true)]
    async fn a_loss_is_told_soon_after_timers_stood_still() {
        let left = Duration::from_millis(1500);
        let belief = Belief::new(BootInstant::now(), left);
        let mut lost = Box::pin(belief.lost());
        assert!(lost.as_mut().now_or_never().is_none());
        std::thread::sleep(left);
        tokio::time::advance(LOOK_AGAIN).await;
        assert!(lost.now_or_never().is_some());
    }
}
