//! One shard: its records, and the order in which they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use hashbrown::HashMap;
use idempotency::protocol::{self, Decision, SweepStep};
use idempotency::{AgeLimit, Claim, Claimed, Record, RecordId, Standing, Stored, Swept, Timestamp};

use crate::floors::Floors;
use crate::room::{RECORD_OVERHEAD, Room};
use crate::steps::RecordSteps;

/// Whoever holds the lock on a shard decides about its records.
///
/// Every record has an entry in `due` at its `look_at`, which is never later than [`Record::due`]. Other entries of
/// the same record are left over from when it was to be looked at later, and mean nothing.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    records: HashMap<RecordId, Box<Slot>>,
    due: Due,
    /// What all records together take, in bytes.
    bytes: usize,
    /// What was purged or dropped beside claims, for the next sweep to report.
    swept_beside: Swept,
}

type Due = BinaryHeap<Reverse<(Timestamp, RecordId)>>;

/// A record in its place. Boxed, so that a shard that grows moves pointers.
#[derive(Debug)]
struct Slot {
    record: Record,
    /// What its claim reserved for its outcome, in bytes.
    reserved: usize,
    look_at: Timestamp,
    /// The steps of calls to external APIs; most records have none.
    steps: Option<Box<RecordSteps>>,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn record(&self, id: &RecordId) -> Option<&Record> {
        self.records.get(id).map(|slot| &slot.record)
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (&RecordId, &Record)> {
        self.records.iter().map(|(id, slot)| (id, &slot.record))
    }

    pub(crate) fn claim(&mut self, claim: &Claim, now: Timestamp, room: &Room, floors: &Floors) -> Claimed {
        let claimed = self.decide(claim, now, room, floors);
        // Afterwards: a record in doubt that this claim begins anew is its own to report as a possible escape.
        self.tidy(now, LOOKS_PER_CLAIM, room, floors);
        claimed
    }

    fn decide(&mut self, claim: &Claim, now: Timestamp, room: &Room, floors: &Floors) -> Claimed {
        let slot = self.records.get_mut(&claim.id);
        let record = slot.as_deref().map(|slot| &slot.record);
        let floor = floors.of(judging_limit(record, claim, now));
        if let Decision::Answer(claimed) = protocol::decide(record, claim, now, floor) {
            return claimed;
        }
        let asked = usize::try_from(claim.room).unwrap_or(usize::MAX);
        let Some(slot) = slot else {
            if !room.reserve(None, RECORD_OVERHEAD.saturating_add(asked)) {
                return Claimed::Full;
            }
            let (record, grant) = protocol::grant(None, claim, now);
            self.insert(claim.id, record, asked, now);
            return Claimed::Granted(grant);
        };
        // A takeover keeps the room of the attempt before it, so that it is never refused.
        let takeover = slot.record.standing(now) == Standing::LeaseEnded;
        let reserved = if takeover { slot.reserved } else { asked };
        let before = slot.size();
        if !room.reserve(Some(before), RECORD_OVERHEAD.saturating_add(reserved)) {
            return Claimed::Full;
        }
        if !slot.record.keeps_steps(now) {
            slot.steps = None;
        }
        let (record, grant) = protocol::grant(Some(slot.record.clone()), claim, now);
        slot.record = record;
        slot.reserved = reserved;
        slot.watch(claim.id, &mut self.due);
        self.bytes = self.bytes - before + slot.size();
        Claimed::Granted(grant)
    }

    /// Changes a record, if there is one, by one of the protocol's functions.
    pub(crate) fn change<T>(&mut self, id: &RecordId, room: &Room, change: impl FnOnce(Option<&mut Record>) -> T) -> T {
        let Some(slot) = self.records.get_mut(id) else { return change(None) };
        let before = slot.size();
        let changed = change(Some(&mut slot.record));
        slot.watch(*id, &mut self.due);
        room.change(Some(before), Some(slot.size()));
        self.bytes = self.bytes - before + slot.size();
        changed
    }

    /// A record and its steps, to read.
    pub(crate) fn steps(&self, id: &RecordId) -> Option<(&Record, &RecordSteps)> {
        let slot = self.records.get(id)?;
        Some((&slot.record, slot.steps.as_deref()?))
    }

    /// All records that have steps.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = (&RecordId, &Record, &RecordSteps)> {
        self.records.iter().filter_map(|(id, slot)| Some((id, &slot.record, slot.steps.as_deref()?)))
    }

    /// Changes the steps of a record, if there is one. None when there is no room for what `grows`.
    pub(crate) fn change_steps<T>(
        &mut self,
        id: &RecordId,
        room: &Room,
        grows: usize,
        change: impl FnOnce(Option<(&Record, &mut RecordSteps)>) -> T,
    ) -> Option<T> {
        let Some(slot) = self.records.get_mut(id) else { return Some(change(None)) };
        let before = slot.size();
        let reserved = before.saturating_add(grows);
        if grows > 0 && !room.reserve(Some(before), reserved) {
            return None;
        }
        let mut steps = slot.steps.take().unwrap_or_default();
        let changed = change(Some((&slot.record, &mut steps)));
        slot.steps = Some(steps).filter(|steps| !steps.is_empty());
        let after = slot.size();
        room.change(Some(if grows > 0 { reserved } else { before }), Some(after));
        self.bytes = self.bytes - before + after;
        Some(changed)
    }

    /// Puts what `replace` makes of the record, or of there being none, in its place.
    pub(crate) fn replace(
        &mut self,
        id: &RecordId,
        now: Timestamp,
        room: &Room,
        replace: impl FnOnce(Option<Record>) -> Record,
    ) {
        if self.records.contains_key(id) {
            self.change(id, room, |record| {
                if let Some(record) = record {
                    *record = replace(Some(record.clone()));
                }
            });
        } else {
            room.change(None, Some(RECORD_OVERHEAD));
            self.insert(*id, replace(None), 0, now);
        }
    }

    fn insert(&mut self, id: RecordId, record: Record, reserved: usize, now: Timestamp) {
        let slot = Slot { look_at: next_look(&record, now), record, reserved, steps: None };
        self.bytes += slot.size();
        self.due.push(Reverse((slot.look_at, id)));
        self.records.insert(id, Box::new(slot));
    }

    /// Drops payloads and deletes rows that are due, at most `limit`. Says first what was done beside claims since the
    /// last time, then what was done now.
    pub(crate) fn sweep(&mut self, now: Timestamp, limit: usize, room: &Room, floors: &Floors) -> (Swept, Swept) {
        let beside = std::mem::take(&mut self.swept_beside);
        (beside, self.look(now, usize::MAX, limit, room, floors))
    }

    /// Makes room for a claim by clearing away all that is due, and says whether there was anything.
    pub(crate) fn clear(&mut self, now: Timestamp, room: &Room, floors: &Floors) -> bool {
        self.tidy(now, usize::MAX, room, floors)
    }

    fn tidy(&mut self, now: Timestamp, looks: usize, room: &Room, floors: &Floors) -> bool {
        let swept = self.look(now, looks, usize::MAX, room, floors);
        self.swept_beside = self.swept_beside.and(swept);
        swept.purged + swept.tombstoned > 0
    }

    fn look(&mut self, now: Timestamp, looks: usize, limit: usize, room: &Room, floors: &Floors) -> Swept {
        let mut swept = Swept::default();
        for _ in 0..looks {
            let Some(Reverse((at, id))) = self.due.peek().copied().filter(|Reverse((at, _))| *at <= now) else { break };
            if swept.purged + swept.tombstoned >= limit {
                swept.more = true;
                break;
            }
            self.due.pop();
            let Some(slot) = self.records.get_mut(&id).filter(|slot| slot.look_at == at) else { continue };
            let before = slot.size();
            match slot.step_of_sweep(now) {
                SweepStep::Purge { was_in_doubt } => {
                    floors.raise(&slot.record);
                    self.records.remove(&id);
                    room.change(Some(before), None);
                    self.bytes -= before;
                    swept.purged += 1;
                    swept.escapes += usize::from(was_in_doubt);
                    continue;
                }
                SweepStep::DropPayload => {
                    slot.drop_payload();
                    room.change(Some(before), Some(slot.size()));
                    self.bytes = self.bytes - before + slot.size();
                    swept.tombstoned += 1;
                }
                SweepStep::Keep => {}
            }
            slot.look_at = next_look(&slot.record, now).max(slot.kept_for_steps(now));
            self.due.push(Reverse((slot.look_at, id)));
        }
        if swept.purged > 0 {
            self.shrink();
        }
        swept
    }

    /// Gives memory back when most of it is unused. What shrinks is left half full, so that it does not grow at once.
    fn shrink(&mut self) {
        if self.records.capacity() > SMALL && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
        if self.due.capacity() > SMALL && self.due.len() < self.due.capacity() / 4 {
            self.due.shrink_to(self.due.len() * 2);
        }
    }
}

impl Slot {
    /// What it takes, in bytes. The reservation stands until the outcome is known: an attempt in doubt may still be
    /// completed.
    fn size(&self) -> usize {
        let outcome = match &self.record.stored {
            Stored::InFlight | Stored::InDoubt(None) => self.reserved,
            Stored::InDoubt(Some(response)) => response.size().max(self.reserved),
            Stored::Completed(outcome) => outcome.size(),
            Stored::Released => 0,
        };
        let steps = self.steps.as_ref().map_or(0, |steps| steps.size());
        RECORD_OVERHEAD.saturating_add(outcome).saturating_add(steps)
    }

    /// As the protocol says, and a released record stays for its steps.
    fn step_of_sweep(&self, now: Timestamp) -> SweepStep {
        match protocol::sweep_holding(&self.record, now, HOLD) {
            SweepStep::Purge { .. } if self.kept_for_steps(now) > now => SweepStep::Keep,
            step => step,
        }
    }

    /// When a released record may go whose steps still count; in the past if it has none.
    fn kept_for_steps(&self, now: Timestamp) -> Timestamp {
        let has_steps = self.steps.is_some() && matches!(self.record.stored, Stored::Released);
        if has_steps && self.record.keeps_steps(now) {
            return self.record.steps_kept_until().after(Duration::from_micros(1));
        }
        Timestamp::MIN
    }

    /// Sees to it that a record that is now due earlier than before is looked at in time.
    fn watch(&mut self, id: RecordId, due: &mut Due) {
        let at = self.record.due_holding(HOLD);
        if at < self.look_at {
            self.look_at = at;
            due.push(Reverse((at, id)));
        }
    }

    fn drop_payload(&mut self) {
        if let Stored::Completed(outcome) = &mut self.record.stored {
            *outcome = outcome.clone().without_payload();
        }
    }
}

/// The limit that judges the age of the claim's key, if it comes to that: a released record's own, else the claim's.
fn judging_limit<'a>(record: Option<&'a Record>, claim: &'a Claim, now: Timestamp) -> Option<&'a AgeLimit> {
    claim.key_time?;
    match record.map(|record| (record, record.standing(now))) {
        Some((record, Standing::Released)) => record.life.as_ref().unwrap_or(&claim.life).age(),
        None | Some((_, Standing::Absent { .. })) => claim.life.age(),
        Some(_) => None,
    }
}

/// When to look at a record again: when it is due, but not later than it would be if it were completed or released
/// at once, so that as a rule a record needs one entry only.
fn next_look(record: &Record, now: Timestamp) -> Timestamp {
    let unfinished = matches!(record.stored, Stored::InFlight | Stored::InDoubt(_));
    let settled = record.life.as_ref().filter(|_| unfinished).map(|life| life.windows().response().min(SETTLED));
    let due = settled.map_or(Timestamp::MAX, |settled| now.after(settled)).min(record.due_holding(HOLD));
    due.max(now.after(Duration::from_micros(1)))
}

/// How long a token is held after all else is over. This store's clock never steps back while it lives, and with it go its tokens;
/// so a row that is over makes room at once.
const HOLD: Duration = Duration::ZERO;

/// How long after its claim a record is looked at, at the latest, to see whether it was released meanwhile.
const SETTLED: Duration = Duration::from_secs(60);

/// How many entries a claim looks at in passing. A record is looked at three times or so in its life, so a store that
/// goes on being used needs no sweeper.
const LOOKS_PER_CLAIM: usize = 4;

/// Below this capacity nothing is given back.
const SMALL: usize = 64;
