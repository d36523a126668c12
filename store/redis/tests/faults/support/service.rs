//! Services that charge, and a ledger of what they charged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotency::{Engine, RunError, StoreErrorKind, WorkError, run};
use idempotency_redis::RedisStore;
use idempotency_testbed::servers::Redis;
use tokio::time::{Instant, sleep};

use super::{LONG, PATIENT, TIMEOUT, hasty, operation, settings, store};

/// What was charged, by whichever service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<String, u32>>>);

impl Ledger {
    fn charge(&self, key: &str) {
        *self.0.lock().unwrap().entry(key.to_owned()).or_default() += 1;
    }

    pub(crate) fn of(&self, key: &str) -> u32 {
        self.0.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    /// Every key was charged, and once.
    #[track_caller]
    pub(crate) fn has_each_once(&self, keys: &[String]) {
        let wrong: Vec<(&String, u32)> = keys.iter().map(|key| (key, self.of(key))).filter(|(_, n)| *n != 1).collect();
        assert!(wrong.is_empty(), "not charged once: {wrong:?}");
    }
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Charged, under this number.
    Charged(u32),
    /// Charged before, under this number.
    Replayed(u32),
    /// 409, come again.
    InFlight,
    /// 409, nobody knows.
    InDoubt,
    /// 409, not ours to read.
    Unreadable,
    /// 503, no room.
    Full,
    /// 503.
    Unavailable(StoreErrorKind),
}

impl Answer {
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::Charged(number) | Self::Replayed(number) => Some(number),
            _ => None,
        }
    }

    #[track_caller]
    pub(crate) fn is_honest(self) {
        assert!(!matches!(self, Self::InDoubt | Self::Unreadable), "{self:?}");
    }
}

/// A service that charges once for each key.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) engine: Engine<RedisStore>,
    pub(crate) ledger: Ledger,
}

impl Service {
    pub(crate) async fn on(redis: &Redis) -> Self {
        Self::of(store(&redis.url()).await, &Ledger::default())
    }

    pub(crate) fn of(store: RedisStore, ledger: &Ledger) -> Self {
        Self::with_timeout(store, ledger, PATIENT)
    }

    pub(crate) fn with_timeout(store: RedisStore, ledger: &Ledger, store_timeout: Duration) -> Self {
        Self { engine: Engine::new(store, settings(store_timeout)), ledger: ledger.clone() }
    }

    /// One that is to run into its timeout.
    pub(crate) async fn hasty(url: &str, ledger: &Ledger) -> Self {
        Self::with_timeout(hasty(url).await, ledger, TIMEOUT)
    }

    pub(crate) async fn post(&self, key: &str) -> Answer {
        self.post_slowly(key, Duration::ZERO).await
    }

    /// Takes so long between the charge and its answer.
    pub(crate) async fn post_slowly(&self, key: &str, takes: Duration) -> Answer {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let operation = operation(key);
        let ran = run(&self.engine, &operation, async |_attempt| {
            self.ledger.charge(key);
            sleep(takes).await;
            Ok::<_, WorkError<std::convert::Infallible>>(NUMBERS.fetch_add(1, Ordering::SeqCst))
        });
        match ran.await {
            Ok(ran) if ran.replayed => Answer::Replayed(ran.value),
            Ok(ran) => Answer::Charged(ran.value),
            Err(RunError::InFlight { .. }) => Answer::InFlight,
            Err(RunError::InDoubt(_)) => Answer::InDoubt,
            Err(RunError::Unreadable) => Answer::Unreadable,
            Err(RunError::Full) => Answer::Full,
            Err(RunError::Store(error)) => Answer::Unavailable(error.kind()),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// What a patient client gets in the end, long before any lease is over.
    pub(crate) async fn post_until_answered(&self, key: &str) -> u32 {
        let give_up = Instant::now() + LONG / 2;
        loop {
            let answer = self.post(key).await;
            answer.is_honest();
            if let Some(number) = answer.number() {
                return number;
            }
            assert!(Instant::now() < give_up, "no answer for {key} in time, but {answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}
