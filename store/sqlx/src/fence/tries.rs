//! What is tried again.

use std::time::Duration;

use idempotency::StoreError;
use tokio::time::{Instant, sleep};

use super::FenceError;

/// Tries again while others are in the way. What failed so was rolled back.
pub(super) struct Tries {
    give_up: Instant,
    longest: Duration,
    limit: Duration,
}

impl Tries {
    /// For so long, with pauses of at most `limit`.
    pub(super) fn new(patience: Duration, limit: Duration) -> Self {
        Self { give_up: Instant::now() + patience, longest: Duration::from_millis(1), limit }
    }

    /// The answer of a try; none when there is to be another one, after a moment.
    pub(super) async fn judge<T>(&mut self, result: Result<T, Refusal>) -> Result<Option<T>, FenceError> {
        let cause = match result {
            Ok(answer) => return Ok(Some(answer)),
            Err(Refusal::Fence(refused)) => return Err(counted(refused)),
            Err(Refusal::Again(error)) if Instant::now() >= self.give_up => return Err(error.into()),
            Err(Refusal::Again(cause)) => cause,
        };
        tracing::debug!(%cause, "another try");
        sleep(self.longest.mul_f64(rand::random_range(0.5..=1.0))).await;
        self.longest = (self.longest * 2).min(self.limit);
        Ok(None)
    }
}

/// Why one try came to nothing.
pub(crate) enum Refusal {
    /// Others were in the way: try again.
    Again(StoreError),
    /// That is the answer.
    Fence(FenceError),
}

impl<E: Into<FenceError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Fence(error.into())
    }
}

fn counted(refused: FenceError) -> FenceError {
    if let FenceError::Superseded { .. } = refused {
        metrics::counter!("idempotency_fences_superseded_total").increment(1);
    }
    refused
}
