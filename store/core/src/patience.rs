//! How long a store is waited for, and when it is asked again.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::{sleep, timeout};

use crate::StoreError;

/// What an operation of a store answers, if it does within `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, operation).await.unwrap_or_else(|_| Err(StoreError::timeout()))
}

/// Growing pauses between tries, with jitter.
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// Between tries in the background: 50 ms to 5 s.
    pub(crate) const fn in_background() -> Self {
        Self { next: Duration::from_millis(50), longest: Duration::from_secs(5) }
    }

    /// For whoever waits until somebody else is done: after 5 to 10 ms at first, and every 125 to 250 ms in the end.
    pub(crate) const fn of_a_waiter() -> Self {
        Self { next: Duration::from_millis(10), longest: Duration::from_millis(250) }
    }

    pub(crate) async fn pause(&mut self) {
        sleep(self.next_pause()).await;
    }

    /// How long the next pause is, for whoever may not take all of it.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = jittered(self.next);
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

/// Half of `pause` to all of it.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..1.0))
}
