//! Completed records in the order in which they end.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use idempotency::{Life, Outcome, Record, RecordId, Timestamp};

use super::entry::{self, Around, Entry, Put};

/// What all records of a queue have in common, so that the first that was completed is the first that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The outcome is kept, and due when the response window is over.
    Whole,
    /// It was, and the record is due when the tombstone window is over.
    Tombstone,
    /// There was none to keep, so that they are tombstones much younger than those that once were whole.
    NeverWhole,
}

/// Entries, written at the back and taken from the front.
#[derive(Debug)]
pub(super) struct Queue {
    life: Life,
    phase: Phase,
    segments: VecDeque<Segment>,
    /// The number of the first segment, counted round.
    first: u64,
    /// Up to where the first segment was taken.
    taken: usize,
    /// When the last one was completed.
    last: Timestamp,
    /// When the first one is due; never, when there is none.
    due: Timestamp,
}

/// A piece of a queue, which goes when all in it have gone.
#[derive(Debug)]
struct Segment {
    /// When the first one in it was completed.
    base: Timestamp,
    /// How long `bytes` may become.
    most: usize,
    bytes: Vec<u8>,
    /// Payloads as large as many entries: shared with whom they are replayed to, not copied.
    beside: Vec<Bytes>,
}

impl Queue {
    pub(super) fn new(life: Life, phase: Phase) -> Self {
        let segments = VecDeque::new();
        Self { life, phase, segments, first: 0, taken: 0, last: Timestamp::MIN, due: Timestamp::MAX }
    }

    pub(super) fn is_of(&self, life: &Life, phase: Phase) -> bool {
        self.phase == phase && self.life == *life
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn due(&self) -> Timestamp {
        self.due
    }

    /// How many bytes it keeps for entries, used or not.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes.capacity()).sum::<usize>() + self.segments.capacity() * 64
    }

    /// Adds a record with this outcome and says where it is; not one that was completed before the last one, or when the queue is full.
    pub(super) fn push(&mut self, id: &RecordId, record: &Record, outcome: &Outcome) -> Option<u64> {
        let payload = outcome.payload().filter(|_| self.phase == Phase::Whole);
        let here = payload.filter(|payload| payload.len() <= BESIDE);
        let size = entry::longest(record, outcome) + here.map_or(0, Bytes::len);
        if record.since < self.last || size > SEGMENT || self.segments.len() as u64 >= NUMBERS {
            return None;
        }
        if self.segments.back().is_none_or(|last| last.bytes.len() + size > last.most) {
            self.open(record.since, size);
        }
        let number = self.segments.len() as u64 - 1;
        // It was opened just now if there was none.
        let segment = self.segments.back_mut()?;
        segment.reserve(size, number >= MANY);
        let put = match (here, payload) {
            (Some(payload), _) => Put::Here(payload),
            (None, Some(payload)) => {
                segment.beside.push(Bytes::copy_from_slice(payload));
                Put::Beside(segment.beside.len() - 1)
            }
            (None, None) => Put::Nowhere,
        };
        let offset = segment.bytes.len();
        let tombstone = self.phase != Phase::Whole;
        entry::write(&mut segment.bytes, (id, record), (outcome, &put), segment.base, tombstone);
        self.last = record.since;
        if self.due == Timestamp::MAX {
            self.due = self.due_of(record.since);
        }
        Some(((self.first + number) % NUMBERS) << OFFSET_BITS | offset as u64)
    }

    pub(super) fn is_at(&self, place: u64, id: &RecordId) -> bool {
        let (segment, offset) = self.split(place);
        self.segments.get(segment).is_some_and(|segment| entry::is_of(&segment.bytes[offset..], id))
    }

    /// The entry at a place that [`push`](Self::push) gave and that is still there.
    pub(super) fn get(&self, place: u64) -> Option<Entry<'_>> {
        let (segment, offset) = self.split(place);
        Some(self.read(self.segments.get(segment)?, offset))
    }

    /// Takes an entry out of the middle. Its bytes stay until the queue has come to them; a payload beside does not.
    pub(super) fn remove(&mut self, place: u64) {
        let (number, offset) = self.split(place);
        let Some(segment) = self.segments.get_mut(number) else { return };
        entry::leave(&mut segment.bytes[offset..]);
        if !segment.beside.is_empty() {
            segment.drop_payload(offset, &self.life, self.phase);
        }
        self.settle();
    }

    /// The first entry, and where it is.
    pub(super) fn first(&self) -> Option<(u64, Entry<'_>)> {
        let place = self.first << OFFSET_BITS | self.taken as u64;
        Some((place, self.read(self.segments.front()?, self.taken)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        let from = |number| if number == 0 { self.taken } else { 0 };
        let entries = self.segments.iter().enumerate().flat_map(move |(number, segment)| {
            let mut at = from(number);
            std::iter::from_fn(move || {
                let entry = (at < segment.bytes.len()).then(|| self.read(segment, at))?;
                at += entry.length;
                Some(entry)
            })
        });
        entries.filter(|entry| !entry.gone)
    }

    /// Goes on to the first entry that is here, and gives back what is behind it.
    fn settle(&mut self) {
        self.due = loop {
            let Some(first) = self.segments.front() else { break Timestamp::MAX };
            if self.taken == first.bytes.len() {
                self.segments.pop_front();
                (self.first, self.taken) = ((self.first + 1) % NUMBERS, 0);
                continue;
            }
            let entry = self.read(first, self.taken);
            if !entry.gone {
                break self.due_of(entry.since());
            }
            self.taken += entry.length;
        };
        if self.segments.capacity() > SMALL && self.segments.len() < self.segments.capacity() / 4 {
            self.segments.shrink_to(self.segments.len() * 2);
        }
        if self.segments.is_empty() {
            self.last = Timestamp::MIN;
        }
    }

    /// Begins a segment. The first ones are small, so that a shard with little in it takes little.
    fn open(&mut self, base: Timestamp, size: usize) {
        if let Some(last) = self.segments.back_mut() {
            last.bytes.shrink_to_fit();
            last.beside.shrink_to_fit();
        }
        let most = (SEGMENT >> 4_usize.saturating_sub(self.segments.len())).max(size);
        self.segments.push_back(Segment { base, most, bytes: Vec::new(), beside: Vec::new() });
    }

    fn read<'a>(&'a self, segment: &'a Segment, offset: usize) -> Entry<'a> {
        entry::read(&segment.bytes[offset..], segment.around(&self.life, self.phase))
    }

    fn due_of(&self, since: Timestamp) -> Timestamp {
        match self.phase {
            Phase::Whole => since.after(self.life.windows().response()),
            Phase::Tombstone | Phase::NeverWhole => {
                since.after(self.life.windows().tombstone()).after(Duration::from_micros(1))
            }
        }
    }

    /// Which segment, from the first, and where in it.
    fn split(&self, place: u64) -> (usize, usize) {
        let number = ((place >> OFFSET_BITS) + NUMBERS - self.first) % NUMBERS;
        let offset = place & ((1 << OFFSET_BITS) - 1);
        (usize::try_from(number).unwrap_or(usize::MAX), usize::try_from(offset).unwrap_or(usize::MAX))
    }
}

impl Segment {
    fn around<'a>(&'a self, life: &'a Life, phase: Phase) -> Around<'a> {
        Around { base: self.base, beside: &self.beside, life, tombstones: phase != Phase::Whole }
    }

    /// Makes room: by and by, or at once for all that will come, where that is little beside what is there.
    fn reserve(&mut self, size: usize, at_once: bool) {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        if len + size > capacity {
            let grown = if at_once { self.most } else { (capacity + capacity / 2).max(BEGINNING).max(len + size) };
            self.bytes.reserve_exact(grown.min(self.most) - len);
        }
    }

    fn drop_payload(&mut self, offset: usize, life: &Life, phase: Phase) {
        let beside = entry::read(&self.bytes[offset..], self.around(life, phase)).beside();
        if let Some(payload) = beside.and_then(|number| self.beside.get_mut(number)) {
            *payload = Bytes::new();
        }
    }
}

/// How many bits of a place are where in its segment, and which segment.
const OFFSET_BITS: u32 = 14;
const NUMBER_BITS: u32 = 20;
const NUMBERS: u64 = 1 << NUMBER_BITS;

pub(super) const PLACE_BITS: u32 = OFFSET_BITS + NUMBER_BITS;

/// The length of a segment at most, in bytes.
const SEGMENT: usize = 1 << OFFSET_BITS;

/// What any segment is given to begin with, in bytes: all of the first three.
const BEGINNING: usize = SEGMENT >> 2;

/// From so many segments on, one that is empty is little.
const MANY: u64 = 16;

/// A payload longer than this is kept beside the entries, in bytes.
const BESIDE: usize = 2048;

/// Below this capacity nothing is given back.
const SMALL: usize = 16;
