//! How long a store is waited for, and when it is asked again.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use rand::RngExt as _;
use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout_at};

use crate::watch::Watch;
use crate::{StoreError, StoreErrorKind};

/// What an operation of a store answers, if it does within `limit`. A future of its own and no `async fn`, which would keep a second
/// place for the operation; and its timer has no place in it, since most of those in process need none.
pub(crate) fn within<T, F>(limit: Duration, operation: F) -> Within<F>
where
    F: Future<Output = Result<T, StoreError>>,
{
    Within { operation, limit, timer: None }
}

pin_project! {
    /// See [`within`].
    pub(crate) struct Within<F> {
        #[pin]
        operation: F,
        limit: Duration,
        timer: Option<Pin<Box<Unconstrained<Sleep>>>>,
    }
}

impl<T, F> Future for Within<F>
where
    F: Future<Output = Result<T, StoreError>>,
{
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = this.operation.poll(cx) {
            return Poll::Ready(answer);
        }
        // Only now: a store that answers at once costs no timer. Unconstrained, because an operation that uses up its task's turn
        // each time must not keep the timer from its own.
        let timer = this.timer.get_or_insert_with(|| Box::pin(unconstrained(sleep(*this.limit))));
        timer.as_mut().poll(cx).map(|()| Err(StoreError::timeout()))
    }
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
    const fn of_a_waiter() -> Self {
        Self { next: Duration::from_millis(10), longest: Duration::from_millis(250) }
    }

    pub(crate) async fn pause(&mut self) {
        sleep(self.next_pause()).await;
    }

    /// Before that is tried again which failed so. A refusal is told: it lasts until somebody sees to it.
    pub(crate) async fn pause_after(&mut self, error: &StoreError) {
        if error.kind() == StoreErrorKind::Refused {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "the store refuses what is tried again in the background");
        }
        self.pause().await;
    }

    /// How long the next pause is, for whoever may not take all of it.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = jittered(self.next);
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}

/// Somebody who waits until somebody else is done, and asks now and then whether that is so. Between two askings nothing is held of
/// the store but a [`Watch`].
///
/// What ends between the answer "in flight" and the moment from which a store tells of changes would be missed. So whoever begins to be told asks
/// once more, and from then on it is enough to wait for a hint. Hints get lost all the same, with a connection or when the store
/// forbids them, so that there is an asking without one every half to whole second.
///
/// A hint for nothing costs a pause, as long as that of one who is never told: a storm of hints makes no more askings
/// than there are without any.
pub(crate) struct Waiting {
    pauses: Pauses,
    watch: Option<Watch>,
    /// The last asking followed a hint.
    hinted: bool,
}

impl Waiting {
    pub(crate) const fn new() -> Self {
        Self { pauses: Pauses::of_a_waiter(), watch: None, hinted: false }
    }

    /// Waits until it is time to ask again, at most so long. To be called after every asking that was answered by "not yet".
    pub(crate) async fn until_next(&mut self, watch: impl FnOnce() -> Watch, at_most: Duration) {
        let end = Instant::now() + at_most;
        if std::mem::take(&mut self.hinted) {
            sleep_until(end.min(Instant::now() + self.pauses.next_pause())).await;
        }
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let watch = none.insert(watch());
                if watch.is_told() {
                    return;
                }
                watch
            }
        };
        let pause = if watch.is_told() { jittered(TOLD) } else { self.pauses.next_pause() };
        self.hinted = timeout_at(end.min(Instant::now() + pause), watch.changed()).await.is_ok();
    }
}

/// How long whoever is told of changes relies on that, at most.
const TOLD: Duration = Duration::from_secs(1);

/// Half of `pause` to all of it.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::rng().random_range(0.5..1.0))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::timeout;

    use super::*;
    use crate::watch::Watchers;

    const FAR: Duration = Duration::from_secs(3600);

    #[test]
    fn an_answer_that_is_there_at_once_needs_no_timer() {
        // There is no runtime that could have one.
        let answer = within(FAR, async { Ok(1) }).now_or_never();
        assert!(matches!(answer, Some(Ok(1))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_too_long_is_a_timeout_and_what_does_not_is_an_answer() {
        let since = Instant::now();
        let limit = Duration::from_secs(2);
        let late = within(limit, std::future::pending::<Result<(), StoreError>>()).await;
        assert_eq!(late.unwrap_err().kind(), StoreErrorKind::Timeout);
        assert_eq!(since.elapsed(), limit);
        let in_time = async {
            sleep(limit / 2).await;
            Ok(1)
        };
        assert_eq!(within(limit, in_time).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn what_uses_up_every_turn_of_its_task_is_a_timeout_too() {
        let busy = async {
            loop {
                tokio::task::consume_budget().await;
            }
        };
        let late = within(Duration::from_millis(20), busy);
        let late: Result<(), StoreError> = timeout(Duration::from_secs(10), late).await.expect("it has its turn");
        assert!(late.is_err());
    }

    /// How often somebody asks in ten seconds.
    async fn askings(watch: impl Fn() -> Watch) -> usize {
        let end = Instant::now() + Duration::from_secs(10);
        let mut waiting = Waiting::new();
        let mut askings = 1;
        while Instant::now() < end {
            waiting.until_next(&watch, FAR).await;
            askings += 1;
        }
        askings
    }

    /// The pauses of 5 to 155 ms in the beginning are five, and every later one is at least 125 ms.
    const MOST_POLLS: usize = 2 + 5 + 10_000 / 125;

    #[tokio::test(start_paused = true)]
    async fn without_hints_it_is_asked_every_so_often() {
        let askings = askings(Watch::none).await;
        assert!((40..=MOST_POLLS).contains(&askings), "{askings}");
    }

    #[tokio::test(start_paused = true)]
    async fn with_hints_it_is_asked_once_more_and_then_now_and_then() {
        let watchers = Watchers::new();
        let askings = askings(|| watchers.watch(&())).await;
        assert!((2 + 10..=2 + 20).contains(&askings), "{askings}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hint_ends_the_pause_at_once() {
        let watchers = Watchers::new();
        let mut waiting = Waiting::new();
        let since = Instant::now();
        waiting.until_next(|| watchers.watch(&()), FAR).await;
        assert_eq!(since.elapsed(), Duration::ZERO, "something may have been missed before");
        // As if between the two askings.
        watchers.changed(&());
        waiting.until_next(Watch::none, FAR).await;
        assert_eq!(since.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_begins_to_be_told_asks_once_more() {
        let watchers = Watchers::of(|_| ());
        let mut waiting = Waiting::new();
        let begin = async {
            tokio::task::yield_now().await;
            watchers.told(&(), true);
        };
        let since = Instant::now();
        tokio::join!(waiting.until_next(|| watchers.watch(&()), FAR), begin);
        assert_eq!(since.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_hints_makes_no_more_askings_than_there_are_without() {
        let watchers = Watchers::new();
        let storm = tokio::spawn({
            let watchers = watchers.clone();
            async move {
                loop {
                    watchers.changed(&());
                    sleep(Duration::from_millis(1)).await;
                }
            }
        });
        let askings = askings(|| watchers.watch(&())).await;
        storm.abort();
        assert!(askings <= MOST_POLLS + 1, "{askings}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_takes_longer_than_it_may() {
        let watchers = Watchers::new();
        let mut waiting = Waiting::new();
        for _ in 0..3 {
            watchers.changed(&());
            let since = Instant::now();
            waiting.until_next(|| watchers.watch(&()), Duration::from_millis(3)).await;
            assert!(since.elapsed() <= Duration::from_millis(4));
        }
    }
}
