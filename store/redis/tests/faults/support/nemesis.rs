//! Something bad, again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Does something bad to a server again and again, on a thread of its own, until it is dropped.
pub(crate) struct Nemesis {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl Nemesis {
    pub(crate) fn start(strike: impl Fn() + Send + 'static) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let done = Arc::clone(&done);
            move || {
                let mut strikes = 0;
                while !done.load(Ordering::SeqCst) {
                    strike();
                    strikes += 1;
                }
                strikes
            }
        });
        Self { done, thread: Some(thread) }
    }

    /// How often it struck.
    pub(crate) fn stop(mut self) -> u32 {
        self.done.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.done.store(true, Ordering::SeqCst);
    }
}
