//! Arrivals back in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{TraceError, Wrong};

/// Holds what came for as long as something earlier may still come. Threads and hosts that write one trace write its lines a little
/// out of order.
#[derive(Debug)]
pub struct Order<T> {
    tolerance: i64,
    newest: i64,
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    next: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    time: i64,
    /// What has the same time stays in the order in which it came.
    number: u64,
    line: u64,
    value: T,
}

impl<T> Order<T> {
    /// Tolerates lines that are earlier than one before them by at most `tolerance` microseconds. `i64::MAX` sorts whatever comes, and
    /// holds all of it.
    #[must_use]
    pub fn new(tolerance: i64) -> Self {
        Self { tolerance, newest: i64::MIN, waiting: BinaryHeap::new(), next: 0 }
    }

    /// Takes what stood on `line`.
    ///
    /// # Errors
    /// When it is too early.
    pub fn push(&mut self, time: i64, line: u64, value: T) -> Result<(), TraceError> {
        let by = self.newest.saturating_sub(time);
        if self.newest != i64::MIN && by > self.tolerance {
            let wrong = Wrong::OutOfOrder { by: by as f64 / 1e6, tolerance: self.tolerance as f64 / 1e6 };
            return Err(TraceError { line, column: Some((1, "time")), wrong });
        }
        self.newest = self.newest.max(time);
        self.waiting.push(Reverse(Waiting { time, number: self.next, line, value }));
        self.next += 1;
        Ok(())
    }

    /// The earliest, with its line, when nothing can come before it any more.
    pub fn pop(&mut self) -> Option<(i64, u64, T)> {
        let Reverse(first) = self.waiting.peek()?;
        // At equal times, the one that came first goes first, so an equal one that is still to come does not matter.
        if first.time > self.newest.saturating_sub(self.tolerance) {
            return None;
        }
        self.rest()
    }

    /// The earliest, when nothing more comes.
    pub fn rest(&mut self) -> Option<(i64, u64, T)> {
        self.waiting.pop().map(|Reverse(first)| (first.time, first.line, first.value))
    }
}

impl<T> Waiting<T> {
    fn place(&self) -> (i64, u64) {
        (self.time, self.number)
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }
}
