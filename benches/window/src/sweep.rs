//! How much is held at every moment of a trace, under every window.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Settings;
use crate::bytes::Weights;
use crate::result::{Anchor, Memory};

/// What each arrival did, in columns.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) times: Vec<i64>,
    pub(crate) completed: Vec<i64>,
    pub(crate) sizes: Vec<u32>,
    /// Under which windows it ran, a bit each: windows that count from the arrival, and from completion.
    ran: [Vec<u64>; 2],
    /// How many windows are exceeded by the gap before and after it. All of them where there is none.
    before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

impl Sweep {
    pub(crate) fn push(&mut self, time: i64, completed: i64, size: u32, ran: [u64; 2], gap: u8) {
        self.times.push(time);
        self.completed.push(completed);
        self.sizes.push(size);
        self.ran[0].push(ran[0]);
        self.ran[1].push(ran[1]);
        self.before.push(gap);
        self.after.push(u8::MAX);
    }

    /// The arrivals in the order in which they complete, which is the order in which their windows end.
    fn by_completion(&self) -> Completions {
        let mut order: Vec<u32> = (0..self.times.len() as u32).collect();
        order.sort_by_key(|i| self.completed[*i as usize]);
        let in_order = |i: &u32| *i as usize;
        Completions {
            times: order.iter().map(in_order).map(|i| self.completed[i]).collect(),
            sizes: order.iter().map(in_order).map(|i| self.sizes[i]).collect(),
            ran: by_window(order.iter().map(in_order).map(|i| self.ran[1][i])),
        }
    }
}

/// For each window a bit each arrival, where there was for each arrival a bit each window: a sweep of one window then reads an eighth of a byte
/// an arrival and not eight.
fn by_window(masks: impl ExactSizeIterator<Item = u64>) -> Vec<Vec<u64>> {
    let mut windows: Vec<Vec<u64>> = (0..64).map(|_| Vec::with_capacity(masks.len().div_ceil(64))).collect();
    let mut masks = masks.peekable();
    while masks.peek().is_some() {
        let mut block = [0; 64];
        block.iter_mut().zip(&mut masks).for_each(|(row, mask)| *row = mask);
        transpose(&mut block);
        windows.iter_mut().zip(block).for_each(|(window, word)| window.push(word));
    }
    windows
}

/// Bit i of word j becomes bit j of word i (Hacker's Delight, 7-3): swaps quarters, then quarters of quarters.
fn transpose(block: &mut [u64; 64]) {
    let (mut half, mut low) = (32, u64::from(u32::MAX));
    while half > 0 {
        for row in (0..64).filter(|row| row & half == 0) {
            let swapped = (block[row] >> half ^ block[row + half]) & low;
            block[row] ^= swapped << half;
            block[row + half] ^= swapped;
        }
        half /= 2;
        low ^= low << half;
    }
}

struct Completions {
    times: Vec<i64>,
    sizes: Vec<u32>,
    ran: Vec<Vec<u64>>,
}

/// For each anchor and window, unless the trace is too short for the window.
pub(crate) fn memories(mut sweep: Sweep, settings: &Settings) -> [Vec<Option<Memory>>; 3] {
    let windows = settings.grid.bounds();
    let span = (sweep.times[0], sweep.times[sweep.times.len() - 1]);
    let judged = windows.partition_point(|window| *window <= (span.1 - span.0) / 3);
    let completions = sweep.by_completion();
    let ran = std::mem::take(&mut sweep.ran).map(|masks| by_window(masks.into_iter()));
    let (next, found) = (AtomicUsize::new(0), Mutex::new([(); 3].map(|()| vec![None; windows.len()])));
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let (window, anchor) = (job / 3, Anchor::ALL[job % 3]);
            if window >= judged {
                return;
            }
            let memory = memory(&sweep, &ran, &completions, anchor, window, windows[window], settings);
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            found[anchor as usize][window] = Some(memory);
        }
    };
    std::thread::scope(|scope| {
        let others = std::thread::available_parallelism().map_or(1, usize::from).min(judged.max(1)) - 1;
        for _ in 0..others {
            scope.spawn(work);
        }
        work();
    });
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn memory(
    sweep: &Sweep,
    ran: &[Vec<Vec<u64>>; 2],
    completions: &Completions,
    anchor: Anchor,
    number: usize,
    window: i64,
    settings: &Settings,
) -> Memory {
    let Sweep { times, sizes, before, after, .. } = sweep;
    let longer = |gaps: &[u8]| by_gap(gaps, number as u8);
    let (begun, ended);
    let [begins, ends, bodies] = match anchor {
        Anchor::Arrival => [Moments { times, sizes, bits: &ran[0][number] }; 3],
        Anchor::Completion => {
            let ends = Moments { times: &completions.times, sizes: &completions.sizes, bits: &completions.ran[number] };
            [Moments { times, sizes, bits: &ran[1][number] }, ends, ends]
        }
        Anchor::Renewed => {
            (begun, ended) = (longer(before), longer(after));
            let begins = Moments { times, sizes, bits: &begun };
            [begins, Moments { times, sizes, bits: &ended }, begins]
        }
    };
    let level = Level {
        begins,
        records: Ends { moments: ends, after: window, next: 0 },
        bodies: Ends { moments: bodies, after: settings.response.min(window), next: 0 },
        weights: &settings.weights,
        now: [0; 3],
        // Without stores nothing is ever asked.
        worst: if settings.weights.is_empty() { [u64::MAX; 3] } else { [0; 3] },
        peak_records: 0,
        peak_bytes: vec![0.0; settings.weights.len()],
        held: [0; 3],
    };
    level.run().scaled(1.0 / settings.sample.share())
}

/// A bit each arrival: whether its gap exceeds the window of this number.
fn by_gap(gaps: &[u8], number: u8) -> Vec<u64> {
    let word = |gaps: &[u8]| gaps.iter().rev().fold(0, |word, gap| word << 1 | u64::from(*gap > number));
    gaps.chunks(64).map(word).collect()
}

/// Moments in the order of time, and at which of them something happens, a bit each.
#[derive(Clone, Copy)]
struct Moments<'a> {
    times: &'a [i64],
    sizes: &'a [u32],
    bits: &'a [u64],
}

/// What happens in some of them.
struct Sum {
    /// How many there are.
    count: u64,
    /// Their times since the first moment, added up.
    times: i128,
    /// Their sizes.
    sizes: u64,
    /// Their times, each multiplied by its size.
    products: i128,
}

impl Moments<'_> {
    fn happens(&self, i: usize) -> bool {
        self.bits[i / 64] >> (i % 64) & 1 == 1
    }

    /// Without a branch for each, since what happens cannot be foreseen.
    fn sum<const SIZES: bool>(&self, range: Range<usize>, origin: i64) -> Sum {
        let mut sum = Sum { count: 0, times: 0, sizes: 0, products: 0 };
        let mut first = range.start;
        while first < range.end {
            let last = range.end.min(first / 64 * 64 + 64);
            let mut word = self.bits[first / 64] >> (first % 64);
            for (time, size) in self.times[first..last].iter().zip(&self.sizes[first..last]) {
                let mask = (word & 1).wrapping_neg();
                word >>= 1;
                let time = (time - origin) & mask.cast_signed();
                sum.count += mask & 1;
                sum.times += i128::from(time);
                if SIZES {
                    sum.sizes += u64::from(*size) & mask;
                    sum.products += i128::from(time) * i128::from(*size);
                }
            }
            first = last;
        }
        sum
    }
}

/// What ends, so long after its moment.
struct Ends<'a> {
    moments: Moments<'a>,
    after: i64,
    next: usize,
}

impl Ends<'_> {
    /// Those that end before `now`. What ends at it is still there.
    fn before(&mut self, now: i64) -> Range<usize> {
        let (begin, limit) = (self.next, now - self.after);
        let times = &self.moments.times[begin..];
        self.next += times.iter().take_while(|time| **time < limit).count();
        begin..self.next
    }
}

/// What is held at a moment, and what was held at worst and in all. Three fingers go through the arrivals once: where records begin, where they
/// end, and where they lose their bodies.
struct Level<'a> {
    begins: Moments<'a>,
    records: Ends<'a>,
    bodies: Ends<'a>,
    weights: &'a [Weights],
    /// Records, those with a body, and bytes of bodies.
    now: [u64; 3],
    /// The same at a moment that was the worst so far for some store.
    worst: [u64; 3],
    peak_records: u64,
    peak_bytes: Vec<f64>,
    /// Ends less begins, each times what ended and began: what was held, times how long, in microseconds.
    held: [i128; 3],
}

impl Level<'_> {
    fn run(mut self) -> Memory {
        let times = self.begins.times;
        let (begin, end) = (times[0], times[times.len() - 1]);
        for first in (0..times.len()).step_by(BLOCK) {
            self.rise(first..times.len().min(first + BLOCK));
        }
        self.end(end);
        self.memory(end - begin)
    }

    /// Goes through some arrivals. Most can be taken together: where even with all that begins among them, and without what ends, no more is held than
    /// at the worst moment so far, none of them is a worse one.
    fn rise(&mut self, range: Range<usize>) {
        let begun = self.begins.sum::<true>(range.clone(), self.begins.times[0]);
        let most = [self.now[0] + begun.count, self.now[1] + begun.count, self.now[2] + begun.sizes];
        if most[0] <= self.peak_records && most.iter().zip(&self.worst).all(|(most, worst)| most <= worst) {
            self.begin(&begun);
            self.end(self.begins.times[range.end - 1]);
        } else if range.len() > LEAST {
            let part = (range.len() / 4).max(LEAST);
            for first in range.clone().step_by(part) {
                self.rise(first..range.end.min(first + part));
            }
        } else {
            let begins = self.begins;
            for i in range.filter(|i| begins.happens(*i)) {
                self.end(self.begins.times[i]);
                let begun = self.begins.sum::<true>(i..i + 1, self.begins.times[0]);
                self.begin(&begun);
                self.peak();
            }
        }
    }

    fn begin(&mut self, begun: &Sum) {
        self.now[0] += begun.count;
        self.now[1] += begun.count;
        self.now[2] += begun.sizes;
        self.held[0] -= begun.times;
        self.held[1] -= begun.times;
        self.held[2] -= begun.products;
    }

    fn end(&mut self, now: i64) {
        let origin = self.begins.times[0];
        let ended = self.records.before(now);
        if !ended.is_empty() {
            let ended = self.records.moments.sum::<false>(ended, origin);
            self.now[0] -= ended.count;
            self.held[0] += ended.times + i128::from(self.records.after) * i128::from(ended.count);
        }
        let ended = self.bodies.before(now);
        if !ended.is_empty() {
            let ended = self.bodies.moments.sum::<true>(ended, origin);
            self.now[1] -= ended.count;
            self.now[2] -= ended.sizes;
            let after = i128::from(self.bodies.after);
            self.held[1] += ended.times + after * i128::from(ended.count);
            self.held[2] += ended.products + after * i128::from(ended.sizes);
        }
    }

    /// What is held only falls until something begins again, so this is asked whenever something has begun.
    fn peak(&mut self) {
        self.peak_records = self.peak_records.max(self.now[0]);
        // Less of everything than at another moment weighs less in every store. That is so at nearly all moments.
        if self.now.iter().zip(&self.worst).all(|(now, worst)| now <= worst) {
            return;
        }
        let [records, full, body] = self.now;
        for (peak, weights) in self.peak_bytes.iter_mut().zip(self.weights) {
            let bytes = weights.bytes(records, full, body);
            if bytes > *peak {
                (*peak, self.worst) = (bytes, self.now);
            }
        }
    }

    fn memory(self, length: i64) -> Memory {
        let held = [0, 1, 2].map(|i| self.held[i] + i128::from(self.now[i]) * i128::from(length));
        let mean = held.map(|held| held as f64 / length as f64);
        let bytes = |weights: &Weights| {
            weights.tombstone * mean[0] + (weights.record - weights.tombstone) * mean[1] + weights.per_byte * mean[2]
        };
        Memory {
            mean_records: mean[0],
            peak_records: self.peak_records as f64,
            mean_bytes: self.weights.iter().map(bytes).collect(),
            peak_bytes: self.peak_bytes,
        }
    }
}

/// How many arrivals are looked at together, and how many at least.
const BLOCK: usize = 1024;
const LEAST: usize = 16;

impl Memory {
    fn scaled(mut self, by: f64) -> Self {
        self.mean_records *= by;
        self.peak_records *= by;
        self.mean_bytes.iter_mut().chain(&mut self.peak_bytes).for_each(|bytes| *bytes *= by);
        self
    }
}
