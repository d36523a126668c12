//! Keeps arrivals in order until they have ended, and writes them on a thread of its own.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::TraceOptions;
use super::arrival::{HEAD, Line};
use super::secret::{Hidden, TraceSecret};
use crate::Timestamp;
use crate::time::Clock;

/// What all clones of a writer share. Every arrival holds one, so when it is dropped all of them have ended.
pub(crate) struct Keeper {
    pub(super) secret: TraceSecret,
    /// Keys whose hash begins with a number up to this are traced.
    sampled_to: u64,
    most_pending: usize,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something is to be done before the next round.
    wake: Condvar,
    /// A round is done.
    done: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// In the order of their times.
    lines: VecDeque<Arc<Line>>,
    last: Option<Timestamp>,
    flushes_asked: u64,
    flushes_done: u64,
    /// What still runs is not waited for in the next round.
    all: bool,
    closed: bool,
}

impl Keeper {
    /// Writes the first line and starts the thread that writes the others.
    pub(super) fn start(file: impl Write + Send + 'static, options: TraceOptions) -> Result<Self, io::Error> {
        let TraceOptions { secret, share, most_pending, clock } = options;
        let secret = secret.unwrap_or_else(TraceSecret::random);
        let mut file = csv::Writer::from_writer(file);
        file.write_record(HEAD)?;
        file.flush()?;
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("idempotency-trace".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.write_all(file, most_pending)
        })?;
        // Rounded to what a float can say, and never to none at all. A float beyond the range becomes its end.
        let sampled_to = (share * u64::MAX as f64) as u64;
        Ok(Self { secret, sampled_to, most_pending, clock, shared, thread: Some(thread) })
    }

    pub(super) fn samples(&self, key: &Hidden) -> bool {
        let first = key.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        first <= self.sampled_to
    }

    /// Puts an arrival at the end, if there is room. When all room is behind one that still runs, that one is given up. Wakes the writer
    /// whenever it could make room: one that had nothing to take when half was full sleeps on.
    pub(super) fn add(&self, line: impl FnOnce(Timestamp) -> Line) -> Option<Arc<Line>> {
        let mut queue = self.shared.queue.lock();
        if queue.lines.len() >= self.most_pending {
            self.shared.drop_lines(1);
            if queue.starts_ended() {
                self.shared.wake.notify_one();
                return None;
            }
            queue.lines.pop_front();
        }
        // Under the lock, and never back: lines are in the order of their times.
        let time = self.clock.now().max(queue.last.unwrap_or(Timestamp::MIN));
        let line = Arc::new(line(time));
        queue.last = Some(time);
        queue.lines.push_back(Arc::clone(&line));
        if queue.lines.len() == 1 || queue.is_half_full(self.most_pending) {
            self.shared.wake.notify_one();
        }
        Some(line)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Waits until what has ended is written, and, if `all` is to be, also what still runs.
    pub(super) fn flush(&self, all: bool) {
        let mut queue = self.shared.queue.lock();
        queue.all |= all;
        queue.flushes_asked += 1;
        let mine = queue.flushes_asked;
        self.shared.wake.notify_one();
        while queue.flushes_done < mine && !self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.shared.done.wait_for(&mut queue, ROUND);
        }
    }
}

impl Drop for Keeper {
    /// Waits until all is in the file.
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // One that panicked writes no more.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

impl Queue {
    fn starts_ended(&self) -> bool {
        self.lines.front().is_some_and(|first| first.has_ended())
    }

    /// Lines behind one that still runs cannot be written, however many they are.
    fn is_half_full(&self, most_pending: usize) -> bool {
        self.lines.len() >= most_pending / 2 && self.starts_ended()
    }
}

impl Shared {
    fn write_all<W: Write>(&self, mut file: csv::Writer<W>, most_pending: usize) {
        let mut broken = false;
        let mut ended = Vec::new();
        loop {
            let (closed, flushes) = self.next(&mut ended, most_pending);
            let lines = ended.len() as u64;
            let written = if broken { None } else { Some(write(&mut file, &ended)) };
            match written {
                Some(Ok(())) => {}
                None => self.drop_lines(lines),
                // How much of this batch is in the file is not known.
                Some(Err(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the trace cannot be written and ends here"
                    );
                    broken = true;
                    self.drop_lines(lines);
                }
            }
            ended.clear();
            self.queue.lock().flushes_done = flushes;
            self.done.notify_all();
            if closed {
                return;
            }
        }
    }

    /// Waits for a round's time, or until there is reason to hurry, and takes what has ended.
    fn next(&self, ended: &mut Vec<Arc<Line>>, most_pending: usize) -> (bool, u64) {
        let mut queue = self.queue.lock();
        loop {
            let hurry = queue.closed || queue.flushes_asked > queue.flushes_done;
            if !hurry && queue.lines.is_empty() {
                self.wake.wait(&mut queue);
                continue;
            }
            if !hurry && !queue.is_half_full(most_pending) && !self.wake.wait_for(&mut queue, ROUND).timed_out() {
                continue;
            }
            let all = std::mem::take(&mut queue.all);
            while queue.starts_ended() || (all && !queue.lines.is_empty()) {
                ended.extend(queue.lines.pop_front());
            }
            return (queue.closed, queue.flushes_asked);
        }
    }

    fn drop_lines(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
        metrics::counter!("idempotency_trace_dropped_total").increment(lines);
    }
}

fn write<W: Write>(file: &mut csv::Writer<W>, lines: &[Arc<Line>]) -> Result<(), csv::Error> {
    for line in lines {
        file.write_record(line.columns())?;
    }
    Ok(file.flush()?)
}

/// How long lines are collected before they are written.
const ROUND: Duration = Duration::from_millis(200);
