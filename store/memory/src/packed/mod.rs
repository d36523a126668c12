//! Completed records, packed.
//!
//! 1. A record is here from its completion until it is purged, unless something sets it apart: it was resolved, has steps of outbound
//!    calls, must be kept for longer than its tombstone window, or was completed before another that is here already.
//! 2. Those of one kind (settings of life, with or without an outcome) stand in the order of their completion, which is the order in which
//!    they are due. So nothing is sorted, and what is over is taken from the front.
//! 3. They are bytes behind bytes, in pieces of 16 KiB, and an index says where each is. So a record takes little more than what it
//!    holds, and neither the pieces nor the index grow by more than a claim can wait for.
//! 4. Nothing here changes: a record that does, which is rare, is taken out first.

mod entry;
mod index;
mod numbers;
mod queue;
mod short;

use std::hash::BuildHasher as _;

use hashbrown::DefaultHashBuilder;
use idempotency::protocol::Decision;
use idempotency::{Fingerprint, Life, Outcome, Record, RecordId, Stored, Timestamp};

use self::entry::Entry;
use self::index::Index;
use self::queue::{Phase, Queue};

pub(crate) use self::short::is_short_of;

#[derive(Debug)]
pub(crate) struct Packed {
    index: Index,
    queues: Vec<Queue>,
    hasher: DefaultHashBuilder,
    /// When the first record of all queues is due; never, when there is none.
    due: Timestamp,
}

impl Default for Packed {
    fn default() -> Self {
        let hasher = DefaultHashBuilder::default();
        Self { index: Index::default(), queues: Vec::new(), hasher, due: Timestamp::MAX }
    }
}

/// A record that was taken out.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The record, whole.
    pub(crate) record: Record,
    /// It has only a part of its fingerprint: see [`is_short_of`].
    pub(crate) is_short: bool,
}

/// The first record that is due, as it was found.
#[derive(Debug)]
pub(crate) struct First {
    pub(crate) id: RecordId,
    /// With an empty payload in the place of its own, and without its location.
    pub(crate) record: Record,
    /// What is left of its outcome when the payload is dropped; none of a tombstone.
    pub(crate) left: Option<Outcome>,
    /// The size of its outcome.
    pub(crate) size: usize,
    place: u64,
}

impl Packed {
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many bytes it keeps, used or not.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.index.capacity() * 8 + self.queues.iter().map(Queue::capacity).sum::<usize>()
    }

    /// When the first of them is due; never, when there is none.
    pub(crate) fn due(&self) -> Timestamp {
        self.due
    }

    /// Puts a completed record here, with this outcome, if it is one for this place. It must be kept until `kept_until`.
    pub(crate) fn push(&mut self, id: &RecordId, record: &Record, outcome: &Outcome, kept_until: Timestamp) -> bool {
        let Some(life) = record.life.as_ref().filter(|_| record.token.is_some() && record.resolution.is_none()) else {
            return false;
        };
        if kept_until != record.since.after(life.windows().tombstone()) {
            return false;
        }
        let phase = match (outcome.payload(), &record.stored) {
            (Some(_), _) => Phase::Whole,
            (None, Stored::Completed(before)) if before.payload().is_some() => Phase::Tombstone,
            (None, _) => Phase::NeverWhole,
        };
        let Some(number) = self.queue_for(life, phase) else { return false };
        let queue = &mut self.queues[number];
        let Some(place) = queue.push(id, record, outcome) else { return false };
        self.due = self.due.min(queue.due());
        self.index.insert(self.hasher.hash_one(id), joined(number, place));
        true
    }

    /// The record, to judge it: with an empty payload in the place of its own, and without its location.
    pub(crate) fn record(&self, id: &RecordId) -> Option<Record> {
        let (_, place) = self.find(id)?;
        Some(self.entry(place)?.record())
    }

    /// What `judge` makes of the record for somebody who asks with this fingerprint; the decision is whole.
    pub(crate) fn judge<T>(
        &self,
        id: &RecordId,
        asked: Fingerprint,
        judge: impl FnOnce(Option<&Record>) -> (Decision, T),
    ) -> Option<(Decision, T)> {
        let (_, place) = self.find(id)?;
        let entry = self.entry(place)?;
        let (decision, more) = judge(Some(&entry.record_for(asked)));
        Some((entry.whole(decision), more))
    }

    /// All records, without what [`record`](Self::record) leaves out.
    pub(crate) fn records(&self) -> impl Iterator<Item = (RecordId, Record)> {
        self.queues.iter().flat_map(Queue::iter).map(|entry| (entry.id, entry.record()))
    }

    /// The first record that is due.
    pub(crate) fn first(&self) -> Option<First> {
        let (number, queue) = self.queues.iter().enumerate().min_by_key(|(_, queue)| queue.due())?;
        let (place, entry) = queue.first()?;
        let left = (!entry.is_short()).then(|| entry.without_payload());
        let place = joined(number, place);
        Some(First { id: entry.id, record: entry.record(), left, size: entry.size(), place })
    }

    /// Takes a record out, whole.
    pub(crate) fn take(&mut self, id: &RecordId) -> Option<Unpacked> {
        let (slot, place) = self.find(id)?;
        let entry = self.entry(place)?;
        let record = Record { stored: Stored::Completed(entry.outcome()), ..entry.record() };
        let unpacked = Unpacked { record, is_short: entry.is_short() };
        self.remove(slot, place);
        Some(unpacked)
    }

    /// Drops the first record.
    pub(crate) fn drop(&mut self, first: &First) {
        let found = self.index.find(self.hasher.hash_one(first.id), |place| place == first.place);
        if let Some((slot, place)) = found {
            self.remove(slot, place);
        }
    }

    fn remove(&mut self, slot: usize, place: u64) {
        self.index.remove(slot);
        let (number, place) = split(place);
        self.queues[number].remove(place);
        self.due = self.queues.iter().map(Queue::due).min().unwrap_or(Timestamp::MAX);
    }

    /// Where the record is: in the index, and in which queue where.
    fn find(&self, id: &RecordId) -> Option<(usize, u64)> {
        self.index.find(self.hasher.hash_one(id), |place| {
            let (number, place) = split(place);
            self.queues[number].is_at(place, id)
        })
    }

    fn entry(&self, place: u64) -> Option<Entry<'_>> {
        let (number, place) = split(place);
        self.queues[number].get(place)
    }

    /// The number of the queue for such records; an empty one may become theirs.
    fn queue_for(&mut self, life: &Life, phase: Phase) -> Option<usize> {
        if let Some(number) = self.queues.iter().position(|queue| queue.is_of(life, phase)) {
            return Some(number);
        }
        let new = Queue::new(life.clone(), phase);
        if let Some(number) = self.queues.iter().position(Queue::is_empty) {
            self.queues[number] = new;
            return Some(number);
        }
        if self.queues.len() == MOST_QUEUES {
            return None;
        }
        self.queues.push(new);
        Some(self.queues.len() - 1)
    }
}

/// A place as the index has it.
fn joined(number: usize, place: u64) -> u64 {
    (number as u64 + 1) << QUEUE_SHIFT | place
}

fn split(place: u64) -> (usize, u64) {
    let number = usize::try_from(place >> QUEUE_SHIFT).unwrap_or(usize::MAX);
    (number - 1, place & ((1 << QUEUE_SHIFT) - 1))
}

/// A place in the index is the number of a queue, from 1, and a place in it.
const QUEUE_SHIFT: u32 = queue::PLACE_BITS;

/// Settings of life are made by routes, so they are few. Whatever has others is not packed while all queues are taken.
const MOST_QUEUES: usize = (1 << (index::PLACE_BITS - QUEUE_SHIFT)) - 1;
