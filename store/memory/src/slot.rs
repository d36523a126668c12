//! A record that may still change, in its place.

use std::collections::BTreeSet;
use std::time::Duration;

use idempotency::protocol::{self, SweepStep};
use idempotency::{Fingerprint, Outcome, Record, RecordId, Stored, Timestamp};

use crate::packed::{Packed, is_short_of};
use crate::room::RECORD_OVERHEAD;
use crate::steps::RecordSteps;

/// When to look at which slot.
pub(crate) type Due = BTreeSet<(Timestamp, RecordId)>;

/// A record in its place. Boxed, so that a shard that grows moves pointers.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) record: Record,
    /// It was a tombstone that was packed, and has only a part of its fingerprint.
    pub(crate) is_short: bool,
    /// What its claim reserved for its outcome, in bytes.
    pub(crate) reserved: usize,
    pub(crate) look_at: Timestamp,
    /// The steps of calls to external APIs; most records have none.
    pub(crate) steps: Option<Box<RecordSteps>>,
}

impl Slot {
    /// A completed record in a slot of its own.
    pub(crate) fn of(record: Record) -> Self {
        let look_at = record.due_holding(HOLD);
        Self { record, is_short: false, reserved: 0, look_at, steps: None }
    }

    /// Packs its record with this outcome, if it may be.
    pub(crate) fn pack(&self, id: &RecordId, outcome: &Outcome, packed: &mut Packed) -> bool {
        self.steps.is_none() && packed.push(id, &self.record, outcome, self.record.kept_until_holding(HOLD))
    }

    /// Completes a short fingerprint, if it is that of `asked`.
    pub(crate) fn lengthen(&mut self, asked: Fingerprint) {
        if self.is_short && is_short_of(self.record.fingerprint, asked) {
            self.record.fingerprint = asked;
            self.is_short = false;
        }
    }

    /// What it takes, in bytes. The reservation stands until the outcome is known: an attempt in doubt may still be
    /// completed.
    pub(crate) fn size(&self) -> usize {
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
    pub(crate) fn step_of_sweep(&self, now: Timestamp) -> SweepStep {
        match protocol::sweep_holding(&self.record, now, HOLD) {
            SweepStep::Purge { .. } if self.kept_for_steps(now) > now => SweepStep::Keep,
            step => step,
        }
    }

    /// When a released record may go whose steps still count; in the past if it has none.
    pub(crate) fn kept_for_steps(&self, now: Timestamp) -> Timestamp {
        let has_steps = self.steps.is_some() && matches!(self.record.stored, Stored::Released);
        if has_steps && self.record.keeps_steps(now) {
            return self.record.steps_kept_until().after(Duration::from_micros(1));
        }
        Timestamp::MIN
    }

    /// Sees to it that a record that is now due earlier than before is looked at in time.
    pub(crate) fn watch(&mut self, id: RecordId, due: &mut Due) {
        let at = self.record.due_holding(HOLD);
        if at < self.look_at {
            due.remove(&(self.look_at, id));
            self.look_at = at;
            due.insert((at, id));
        }
    }

    pub(crate) fn drop_payload(&mut self) {
        if let Stored::Completed(outcome) = &mut self.record.stored {
            *outcome = outcome.clone().without_payload();
        }
    }
}

/// How long a token is held after all else is over. This store's clock never steps back while it lives, and with it go its tokens;
/// so a row that is over makes room at once.
pub(crate) const HOLD: Duration = Duration::ZERO;
