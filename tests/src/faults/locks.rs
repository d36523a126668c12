//! Leases that clients hold, from a service that is right about time and knows nothing of its holders: whoever stalls for longer than
//! its lease believes in it still.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::history::{Event, Recorder};

#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<BTreeMap<String, Held>>);

#[derive(Debug)]
struct Held {
    token: u64,
    until: Instant,
    /// The newest token with which somebody was acknowledged.
    written: u64,
}

impl Locks {
    /// Waits for a lease, and gives its token: the time, as the stores do it.
    pub(super) async fn acquire(&self, resource: &str, lease: Duration, history: &Recorder) -> u64 {
        loop {
            if let Some(token) = self.try_acquire(resource, lease, history) {
                return token;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn try_acquire(&self, resource: &str, lease: Duration, history: &Recorder) -> Option<u64> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let last = locks.get(resource);
        if last.is_some_and(|held| held.until > now) {
            return None;
        }
        let at = history.now();
        let token = at.max(last.map_or(0, |held| held.token + 1));
        let written = last.map_or(0, |held| held.written);
        locks.insert(resource.to_owned(), Held { token, until: now + lease, written });
        history.add(Event::Granted { at, resource: resource.to_owned(), token });
        Some(token)
    }

    /// Gives it back, if it is still the one that is held.
    pub(super) fn release(&self, resource: &str, token: u64) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = locks.get_mut(resource).filter(|held| held.token == token) {
            held.until = Instant::now();
        }
    }

    /// Somebody wrote with this token.
    pub(super) fn wrote(&self, resource: &str, token: u64) {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = locks.get_mut(resource) {
            held.written = held.written.max(token);
        }
    }

    /// Waits until somebody with a newer token has written, for at most so long, and not beyond the end.
    pub(super) async fn outlived(&self, resource: &str, token: u64, limit: Duration, done: &AtomicBool) {
        let give_up = Instant::now() + limit;
        while !self.is_outlived(resource, token) && Instant::now() < give_up && !done.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn is_outlived(&self, resource: &str, token: u64) -> bool {
        let locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        locks.get(resource).is_some_and(|held| held.written > token)
    }
}
