//! One shard: its records, and the order in which they are due.

use std::borrow::Cow;
use std::time::Duration;

use hashbrown::HashMap;
use idempotency::protocol::{self, Decision, SweepStep};
use idempotency::{
    AgeLimit, Claim, Claimed, Fingerprint, Holder, Outcome, Record, RecordId, Settled, Standing, Stored, Swept,
    Timestamp,
};

use crate::floors::{AboveCeiling, Floors};
use crate::own::own;
use crate::packed::{Packed, Unpacked};
use crate::room::{RECORD_OVERHEAD, Room};
use crate::slot::{Due, HOLD, Slot};
use crate::steps::RecordSteps;

/// Whoever holds the lock on a shard decides about its records.
///
/// A record is either in a slot or, once it is completed, packed. Slots are for what still changes, and are few.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    slots: HashMap<RecordId, Box<Slot>>,
    /// Every slot's `look_at`, which is never later than [`Record::due`].
    due: Due,
    packed: Packed,
    /// What all records together take, in bytes.
    bytes: usize,
    /// What was purged or dropped beside claims, for the next sweep to report.
    swept_beside: Swept,
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() + self.packed.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes it keeps for places of records, used or not.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity() * size_of::<(RecordId, Box<Slot>)>() + self.packed.capacity()
    }

    /// The record, to judge it or show it: a packed one without its outcome's bytes and location.
    pub(crate) fn record(&self, id: &RecordId) -> Option<Cow<'_, Record>> {
        match self.slots.get(id) {
            Some(slot) => Some(Cow::Borrowed(&slot.record)),
            None => self.packed.record(id).map(Cow::Owned),
        }
    }

    /// All of them, likewise.
    pub(crate) fn records(&self) -> impl Iterator<Item = (RecordId, Cow<'_, Record>)> {
        let slots = self.slots.iter().map(|(id, slot)| (*id, Cow::Borrowed(&slot.record)));
        slots.chain(self.packed.records().map(|(id, record)| (id, Cow::Owned(record))))
    }

    pub(crate) fn claim(
        &mut self,
        claim: &Claim,
        now: Timestamp,
        room: &Room,
        floors: &Floors,
    ) -> Result<Claimed, AboveCeiling> {
        let claimed = self.decide(claim, now, room, floors);
        // Afterwards: a record in doubt that this claim begins anew is its own to report as a possible escape. Not when there
        // was no room: what is over here is then cleared away by the store, which sees that it helped and tries again.
        if !matches!(claimed, Ok(Claimed::Full)) {
            self.tidy(now, LOOKS_PER_CLAIM, room, floors);
        }
        claimed
    }

    fn decide(&mut self, claim: &Claim, now: Timestamp, room: &Room, floors: &Floors) -> Result<Claimed, AboveCeiling> {
        let judge = |record: Option<&Record>| {
            let limit = judging_limit(record, claim, now);
            (protocol::decide(record, claim, now, floors.of(limit)), limit.and(claim.key_time))
        };
        let (is_packed, (decision, dated)) = match self.slots.get_mut(&claim.id) {
            Some(slot) => {
                slot.lengthen(claim.fingerprint);
                (false, judge(Some(&slot.record)))
            }
            None => match self.packed.judge(&claim.id, claim.fingerprint, judge) {
                Some(judged) => (true, judged),
                None => (false, judge(None)),
            },
        };
        match decision {
            Decision::Answer(claimed) => return Ok(claimed),
            Decision::Prolong(tombstone) => {
                self.unpack(&claim.id, Some(claim.fingerprint));
                self.change(&claim.id, room, |record| protocol::prolong(record, claim, now));
                return Ok(Claimed::Executed(tombstone));
            }
            Decision::Grant => {}
        }
        if let Some(key_time) = dated {
            floors.admit(key_time, now)?;
        }
        if is_packed {
            self.unpack(&claim.id, None);
        }
        let asked = usize::try_from(claim.room).unwrap_or(usize::MAX);
        let Some(slot) = self.slots.get_mut(&claim.id) else {
            if !room.reserve(None, RECORD_OVERHEAD.saturating_add(asked)) {
                return Ok(Claimed::Full);
            }
            let (record, grant) = protocol::grant(None, claim, now);
            self.insert(claim.id, record, asked, now);
            return Ok(Claimed::Granted(grant));
        };
        // A takeover keeps the room of the attempt before it, so that it is never refused.
        let takeover = slot.record.standing(now) == Standing::LeaseEnded;
        let reserved = if takeover { slot.reserved } else { asked };
        let before = slot.size();
        let keeps_steps = slot.record.keeps_steps(now);
        let steps = slot.steps.as_ref().filter(|_| keeps_steps).map_or(0, |steps| steps.size());
        if !room.reserve(Some(before), RECORD_OVERHEAD.saturating_add(reserved).saturating_add(steps)) {
            return Ok(Claimed::Full);
        }
        if !keeps_steps {
            slot.steps = None;
        }
        let (record, grant) = protocol::grant(Some(slot.record.clone()), claim, now);
        slot.record = record;
        slot.is_short = false;
        slot.reserved = reserved;
        slot.watch(claim.id, &mut self.due);
        self.bytes = self.bytes - before + slot.size();
        Ok(Claimed::Granted(grant))
    }

    /// Completes: from here on the record is packed, as a rule.
    pub(crate) fn complete(&mut self, holder: &Holder, outcome: &Outcome, now: Timestamp, room: &Room) -> Settled {
        let id = &holder.id;
        let Some(slot) = self.slots.get_mut(id) else {
            return self.change(id, room, |record| protocol::complete(record, holder, outcome, now));
        };
        let before = slot.size();
        // What it holds of the outcome is written once, where it stays.
        let settled = protocol::complete(Some(&mut slot.record), holder, &Outcome::not_kept(outcome.status()), now);
        if settled != Settled::Applied {
            return settled;
        }
        let after = if slot.pack(id, outcome, &mut self.packed) {
            self.remove_slot(id);
            RECORD_OVERHEAD.saturating_add(outcome.size())
        } else {
            slot.record.stored = Stored::Completed(own(outcome));
            slot.watch(*id, &mut self.due);
            slot.size()
        };
        room.change(Some(before), Some(after));
        self.bytes = self.bytes - before + after;
        settled
    }

    /// Changes a record, if there is one, by one of the protocol's functions: a packed one by none that would change it.
    pub(crate) fn change<T>(&mut self, id: &RecordId, room: &Room, change: impl FnOnce(Option<&mut Record>) -> T) -> T {
        let Some(slot) = self.slots.get_mut(id) else {
            let mut record = self.packed.record(id);
            let changed = change(record.as_mut());
            debug_assert_eq!(record, self.packed.record(id), "what changes must be unpacked first");
            return changed;
        };
        let before = slot.size();
        let changed = change(Some(&mut slot.record));
        slot.watch(*id, &mut self.due);
        room.change(Some(before), Some(slot.size()));
        self.bytes = self.bytes - before + slot.size();
        changed
    }

    /// Puts a packed record in a slot, where it can change. It counts the same.
    fn unpack(&mut self, id: &RecordId, asked: Option<Fingerprint>) {
        let Some(Unpacked { record, is_short }) = self.packed.take(id) else { return };
        let mut slot = Slot { is_short, ..Slot::of(record) };
        if let Some(asked) = asked {
            slot.lengthen(asked);
        }
        self.due.insert((slot.look_at, *id));
        self.slots.insert(*id, Box::new(slot));
    }

    fn remove_slot(&mut self, id: &RecordId) {
        if let Some(slot) = self.slots.remove(id) {
            self.due.remove(&(slot.look_at, *id));
        }
    }

    /// A record and its steps, to read.
    pub(crate) fn steps(&self, id: &RecordId) -> Option<(&Record, &RecordSteps)> {
        let slot = self.slots.get(id)?;
        Some((&slot.record, slot.steps.as_deref()?))
    }

    /// All records that have steps.
    pub(crate) fn all_steps(&self) -> impl Iterator<Item = (&RecordId, &Record, &RecordSteps)> {
        self.slots.iter().filter_map(|(id, slot)| Some((id, &slot.record, slot.steps.as_deref()?)))
    }

    /// Changes the steps of a record, if there is one. None when there is no room for what `grows`.
    pub(crate) fn change_steps<T>(
        &mut self,
        id: &RecordId,
        room: &Room,
        grows: usize,
        change: impl FnOnce(Option<(&Record, &mut RecordSteps)>) -> T,
    ) -> Option<T> {
        self.unpack(id, None);
        let Some(slot) = self.slots.get_mut(id) else { return Some(change(None)) };
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
        self.unpack(id, None);
        if self.slots.contains_key(id) {
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
        let look_at = record.due_holding(HOLD).max(now.after(Duration::from_micros(1)));
        let slot = Slot { look_at, record, is_short: false, reserved, steps: None };
        self.bytes += slot.size();
        self.due.insert((look_at, id));
        self.slots.insert(id, Box::new(slot));
    }

    /// Drops payloads and deletes rows that are due. Looks at no more than `left` entries, nor than is good at once, and takes them off
    /// it, those included that stay as they are: each costs time under the lock. Says first what was done beside claims since the last
    /// time, then what was done now.
    pub(crate) fn sweep(&mut self, now: Timestamp, left: &mut usize, room: &Room, floors: &Floors) -> (Swept, Swept) {
        let beside = std::mem::take(&mut self.swept_beside);
        let mut looks = LOOKS_AT_ONCE.min(*left);
        *left -= looks;
        let swept = self.look(now, &mut looks, room, floors);
        *left += looks;
        (beside, swept)
    }

    /// Makes room for a claim by clearing away what is due, as much as is good at once.
    pub(crate) fn clear(&mut self, now: Timestamp, room: &Room, floors: &Floors) -> Swept {
        self.tidy(now, LOOKS_AT_ONCE, room, floors)
    }

    fn tidy(&mut self, now: Timestamp, mut looks: usize, room: &Room, floors: &Floors) -> Swept {
        let swept = self.look(now, &mut looks, room, floors);
        self.swept_beside = self.swept_beside.and(Swept { more: false, ..swept });
        swept
    }

    fn look(&mut self, now: Timestamp, looks: &mut usize, room: &Room, floors: &Floors) -> Swept {
        let mut swept = Swept::default();
        while *looks > 0 && self.next_due() <= now {
            *looks -= 1;
            let looked = if self.packed.due() <= self.slots_due() {
                self.look_at_packed(now, room, floors)
            } else {
                self.look_at_slot(now, room, floors)
            };
            swept = swept.and(looked);
        }
        if swept.purged > 0 {
            self.shrink();
        }
        swept.more = self.next_due() <= now;
        swept
    }

    fn next_due(&self) -> Timestamp {
        self.packed.due().min(self.slots_due())
    }

    fn slots_due(&self) -> Timestamp {
        self.due.first().map_or(Timestamp::MAX, |(at, _)| *at)
    }

    /// Looks at the first packed record, which is due.
    fn look_at_packed(&mut self, now: Timestamp, room: &Room, floors: &Floors) -> Swept {
        let Some(first) = self.packed.first() else { return Swept::default() };
        let before = RECORD_OVERHEAD.saturating_add(first.size);
        match (protocol::sweep_holding(&first.record, now, HOLD), &first.left) {
            (SweepStep::Purge { .. }, _) => {
                floors.raise(&first.record);
                self.packed.drop(&first);
                room.change(Some(before), None);
                self.bytes -= before;
                Swept { purged: 1, ..Swept::default() }
            }
            (SweepStep::DropPayload, Some(left)) => {
                self.packed.drop(&first);
                let after = RECORD_OVERHEAD.saturating_add(left.size());
                if !self.packed.push(&first.id, &first.record, left, first.record.kept_until_holding(HOLD)) {
                    let stored = Stored::Completed(left.clone());
                    let slot = Slot::of(Record { stored, ..first.record });
                    self.due.insert((slot.look_at, first.id));
                    self.slots.insert(first.id, Box::new(slot));
                }
                room.change(Some(before), Some(after));
                self.bytes = self.bytes - before + after;
                Swept { tombstoned: 1, ..Swept::default() }
            }
            // Packed are those alone that are due when their queue says so.
            _ => {
                self.unpack(&first.id, None);
                Swept::default()
            }
        }
    }

    /// Looks at the slot that is due first.
    fn look_at_slot(&mut self, now: Timestamp, room: &Room, floors: &Floors) -> Swept {
        let mut swept = Swept::default();
        let Some((_, id)) = self.due.pop_first() else { return swept };
        let Some(slot) = self.slots.get_mut(&id) else { return swept };
        let before = slot.size();
        match slot.step_of_sweep(now) {
            SweepStep::Purge { was_in_doubt } => {
                floors.raise(&slot.record);
                self.slots.remove(&id);
                room.change(Some(before), None);
                self.bytes -= before;
                swept.purged = 1;
                swept.escapes = usize::from(was_in_doubt);
                return swept;
            }
            SweepStep::DropPayload => {
                slot.drop_payload();
                swept.tombstoned = 1;
                let after = slot.size();
                room.change(Some(before), Some(after));
                self.bytes = self.bytes - before + after;
            }
            SweepStep::Keep => {}
        }
        let next = slot.record.due_holding(HOLD).max(now.after(Duration::from_micros(1)));
        slot.look_at = next.max(slot.kept_for_steps(now));
        self.due.insert((slot.look_at, id));
        swept
    }

    /// Gives memory back when most of it is unused. What shrinks is left half full, so that it does not grow at once.
    fn shrink(&mut self) {
        if self.slots.capacity() > SMALL && self.slots.len() < self.slots.capacity() / 4 {
            self.slots.shrink_to(self.slots.len() * 2);
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

/// How many entries a claim looks at in passing. A record is looked at three times or so in its life, so a store that
/// goes on being used needs no sweeper.
const LOOKS_PER_CLAIM: usize = 4;

/// How many entries are looked at before others have a turn at the shard: a tenth of a millisecond or so.
const LOOKS_AT_ONCE: usize = 256;

/// Below this capacity nothing is given back.
const SMALL: usize = 64;
