//! Something bad, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// Does something bad to a server again and again, on a thread of its own, until it is dropped.
pub(crate) struct Nemesis {
    done: Arc<AtomicBool>,
    strikes: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl Nemesis {
    pub(crate) fn start(strike: impl Fn() + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let strikes = Arc::new(AtomicU32::new(0));
        let thread = std::thread::spawn({
            let (done, strikes) = (Arc::clone(&done), Arc::clone(&strikes));
            move || {
                while !done.load(Ordering::SeqCst) {
                    strike();
                    strikes.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { done, strikes, thread: Some(thread) }
    }

    /// Whether it has struck often enough to prove anything.
    pub(crate) fn has_struck(&self) -> bool {
        self.strikes.load(Ordering::SeqCst) > 10
    }

    pub(crate) fn stop(mut self) {
        self.done.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
    }
}
