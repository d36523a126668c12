//! Hints that a record, or the lease on a resource, may have changed: for those who wait for it.
//!
//! A store that can tell implements [`Store::watch`](crate::Store::watch), or [`Leases::watch`](crate::Leases::watch), over
//! [`Watchers`]. Nothing may depend on a hint: it may come for nothing, and it may never come. Whoever waits asks the store, and asks
//! now and then without one.
//!
//! ```
//! use idempotency::watch::Watchers;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let watchers = Watchers::new();
//! watchers.changed(&"account/7"); // nobody hears it
//!
//! let mut watch = watchers.watch(&"account/7");
//! watchers.changed(&"account/7");
//! watch.changed().await;
//!
//! drop(watch);
//! assert!(watchers.is_empty());
//! # }
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Hears of changes to one record or one resource, from when it was made until it is dropped. Holds no connection.
pub struct Watch(Option<Seat>);

struct Seat {
    /// Whether changes are told of.
    told: watch::Receiver<bool>,
    /// Dropped after the receiver: the last one to leave ends the telling.
    _leaving: Box<dyn Send + Sync>,
}

impl Watch {
    /// One that is never told of anything.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// Whether changes are told of now. Then whoever asked *after* this was so, and was told "in flight" or "held", will be told
    /// when that changes, except for what gets lost on the way.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.0.as_ref().is_some_and(|seat| *seat.told.borrow())
    }

    /// Waits for the next hint. There is one when something may have changed since the last, and one when [`is_told`](Self::is_told)
    /// has changed, since something may have been missed before.
    ///
    /// # Cancel safety
    /// Loses nothing: a hint that comes meanwhile is there for the next call.
    pub async fn changed(&mut self) {
        let changed = match &mut self.0 {
            Some(seat) => seat.told.changed().await.is_ok(),
            None => false,
        };
        if !changed {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("is_told", &self.is_told()).finish_non_exhaustive()
    }
}

/// Who watches what in this process. Clones share it. Costs one atomic load a change while nobody watches anything.
pub struct Watchers<K>(Arc<Shared<K>>);

struct Shared<K> {
    /// How many things are watched, to be read without the lock.
    watched: AtomicUsize,
    bells: Mutex<HashMap<K, watch::Sender<bool>>>,
    source: Option<Source<K>>,
}

type Source<K> = Box<dyn Fn(Watched<'_, K>) + Send + Sync>;

/// What begins or ends to be watched, for a source of hints outside of this process.
#[derive(Clone, Copy, Debug)]
pub enum Watched<'k, K> {
    /// Somebody watches it, and nobody did before.
    First(&'k K),
    /// Nobody watches it any more.
    NoMore(&'k K),
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Watchers<K> {
    /// Of what changes in this process: everything is told of from the start.
    #[must_use]
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Of what changes elsewhere: `source` is called, under a lock, when the first one begins to watch something and when the last one
    /// has left, and says by [`told`](Self::told) when changes are told of.
    pub fn of(source: impl Fn(Watched<'_, K>) + Send + Sync + 'static) -> Self {
        Self::with(Some(Box::new(source)))
    }

    fn with(source: Option<Source<K>>) -> Self {
        Self(Arc::new(Shared { watched: AtomicUsize::new(0), bells: Mutex::default(), source }))
    }

    /// Begins to watch.
    #[must_use]
    pub fn watch(&self, key: &K) -> Watch {
        let mut bells = self.0.bells.lock();
        let told = if let Some(bell) = bells.get(key) {
            bell.subscribe()
        } else {
            let (bell, told) = watch::channel(self.0.source.is_none());
            bells.insert(key.clone(), bell);
            self.0.watched.store(bells.len(), Ordering::Relaxed);
            self.0.hear(Watched::First(key));
            told
        };
        let leaving = Leaving { shared: Arc::clone(&self.0), key: key.clone() };
        Watch(Some(Seat { told, _leaving: Box::new(leaving) }))
    }

    /// Tells all that watch it that it may have changed. To be called after the change, by whoever made it: one who began to watch and
    /// then asked under the lock that the change was made under, and did not see it, is told.
    pub fn changed(&self, key: &K) {
        // No stronger order is needed: it is the lock of the record that orders the asking and the change.
        if self.0.watched.load(Ordering::Relaxed) > 0
            && let Some(bell) = self.0.bells.lock().get(key)
        {
            bell.send_modify(|_| ());
        }
    }

    /// Says whether changes to it are told of from now on.
    pub fn told(&self, key: &K, told: bool) {
        if let Some(bell) = self.0.bells.lock().get(key) {
            say(bell, told);
        }
    }

    /// Changes are not told of any more, of nothing.
    pub fn none_told(&self) {
        self.0.bells.lock().values().for_each(|bell| say(bell, false));
    }

    /// What is watched.
    #[must_use]
    pub fn watched(&self) -> Vec<K> {
        self.0.bells.lock().keys().cloned().collect()
    }

    /// Whether nothing is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.bells.lock().is_empty()
    }
}

fn say(bell: &watch::Sender<bool>, told: bool) {
    bell.send_if_modified(|now| std::mem::replace(now, told) != told);
}

impl<K> Shared<K> {
    fn hear(&self, watched: Watched<'_, K>) {
        if let Some(source) = &self.source {
            source(watched);
        }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for Watchers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Watchers<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Watchers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("watched", &self.0.bells.lock().len()).finish_non_exhaustive()
    }
}

/// The last one to leave ends the telling.
struct Leaving<K: Eq + Hash> {
    shared: Arc<Shared<K>>,
    key: K,
}

impl<K: Eq + Hash> Drop for Leaving<K> {
    fn drop(&mut self) {
        let mut bells = self.shared.bells.lock();
        if bells.get(&self.key).is_some_and(|bell| bell.receiver_count() == 0) {
            bells.remove(&self.key);
            self.shared.watched.store(bells.len(), Ordering::Relaxed);
            self.shared.hear(Watched::NoMore(&self.key));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::{Watch, Watched, Watchers};

    fn is_told_now(watch: &mut Watch) -> bool {
        watch.changed().now_or_never().is_some()
    }

    #[test]
    fn what_changes_is_told_to_all_that_watch_it_and_to_nobody_else() {
        let watchers = Watchers::new();
        let (mut one, mut two, mut other) = (watchers.watch(&1), watchers.watch(&1), watchers.watch(&2));
        assert!(one.is_told() && !is_told_now(&mut one), "nothing has changed yet");
        watchers.changed(&1);
        watchers.changed(&1);
        assert!(is_told_now(&mut one) && is_told_now(&mut two));
        assert!(!is_told_now(&mut one), "two changes are one hint");
        assert!(!is_told_now(&mut other));
        assert!(!is_told_now(&mut Watch::none()));
    }

    #[test]
    fn the_source_learns_of_the_first_and_of_the_last() {
        let heard = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let watchers = Watchers::of({
            let heard = std::sync::Arc::clone(&heard);
            move |watched: Watched<'_, u8>| {
                heard.lock().push(match watched {
                    Watched::First(key) => format!("+{key}"),
                    Watched::NoMore(key) => format!("-{key}"),
                });
            }
        });
        let (mut one, two) = (watchers.watch(&1), watchers.watch(&1));
        assert!(!one.is_told(), "nobody has said so");
        watchers.told(&1, true);
        assert!(is_told_now(&mut one), "what was before was missed");
        watchers.told(&1, true);
        assert!(!is_told_now(&mut one) && two.is_told());
        watchers.none_told();
        assert!(is_told_now(&mut one) && !two.is_told());
        drop(one);
        assert_eq!((watchers.watched(), watchers.is_empty()), (vec![1], false));
        drop(two);
        assert!(watchers.is_empty());
        drop(watchers.watch(&1));
        assert_eq!(*heard.lock(), ["+1", "-1", "+1", "-1"]);
    }
}
