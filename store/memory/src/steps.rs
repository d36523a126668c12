//! The steps of records: calls to external APIs.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use idempotency::outbound::{
    BeginCall, Begun, CallRecord, EndCall, Ended, ListSteps, LoggedEnd, ResolveStep, StepEntry, StepLabel, StepPage,
    StepRecord, StepResolved, StepResult, StepVerdict, StepView, Steps, protocol,
};
use idempotency::{Clock, Nonce, RecordId, StoreError};

use crate::MemoryStore;

/// What a call counts against [`max_bytes`](crate::MemoryStoreBuilder::max_bytes) besides its result: about what it, its step
/// and their places take, in bytes.
pub const CALL_OVERHEAD: usize = 512;

/// The steps of one record.
#[derive(Debug, Default)]
pub(crate) struct RecordSteps(BTreeMap<StepLabel, OneStep>);

#[derive(Debug, Default)]
struct OneStep {
    step: Option<StepRecord>,
    calls: HashMap<Nonce, CallRecord>,
}

impl RecordSteps {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn size(&self) -> usize {
        self.0.values().map(OneStep::size).sum()
    }

    fn one(&self, label: &StepLabel, nonce: Nonce) -> (Option<&StepRecord>, Option<&CallRecord>) {
        let one = self.0.get(label);
        (one.and_then(|one| one.step.as_ref()), one.and_then(|one| one.calls.get(&nonce)))
    }

    fn write(&mut self, label: &StepLabel, nonce: Nonce, step: Option<StepRecord>, call: CallRecord) {
        let one = self.0.entry(label.clone()).or_default();
        if let Some(step) = step {
            one.step = Some(step);
        }
        one.calls.insert(nonce, call);
    }
}

impl OneStep {
    fn size(&self) -> usize {
        let calls = self.calls.values().map(|call| CALL_OVERHEAD + call.end.as_ref().map_or(0, LoggedEnd::size));
        calls.sum::<usize>() + self.step.as_ref().map_or(0, StepRecord::size)
    }
}

/// Makes it hold nothing but its own bytes, as [outcomes](crate::own::own) do.
fn own(result: &mut StepResult) {
    if let StepResult::Kept(bytes) = result {
        *bytes = Bytes::copy_from_slice(bytes);
    }
}

impl<C: Clock> Steps for MemoryStore<C> {
    async fn begin_call(&self, ask: &BeginCall) -> Result<Begun, StoreError> {
        let mut shard = self.shard(&ask.holder.id);
        let now = self.0.clock.now();
        let begin = |kept: Option<(&_, &mut RecordSteps)>| {
            let Some((record, steps)) = kept else { return protocol::begin(None, None, None, ask, now).0 };
            let (step, call) = steps.one(&ask.label, ask.nonce);
            let (begun, written) = protocol::begin(Some(record), step, call, ask, now);
            if let Some((step, call)) = written {
                steps.write(&ask.label, ask.nonce, Some(step), call);
            }
            begun
        };
        // Who is not to call needs no room.
        if let Some((record, steps)) = shard.steps(&ask.holder.id) {
            let (step, call) = steps.one(&ask.label, ask.nonce);
            if let (begun, None) = protocol::begin(Some(record), step, call, ask, now) {
                return Ok(begun);
            }
        }
        Ok(shard.change_steps(&ask.holder.id, &self.0.room, CALL_OVERHEAD, begin).unwrap_or(Begun::Full))
    }

    async fn end_call(&self, report: &EndCall) -> Result<Ended, StoreError> {
        let mut report = report.clone();
        if let LoggedEnd::Done(result) | LoggedEnd::Refused(result) = &mut report.end {
            own(result);
        }
        let report = &report;
        let mut shard = self.shard(&report.id);
        let now = self.0.clock.now();
        let end = |kept: Option<(&_, &mut RecordSteps)>| {
            let Some((record, steps)) = kept else { return Ended::Missing };
            let (step, call) = steps.one(&report.label, report.nonce);
            let (ended, written) = protocol::end(Some(record), step, call, report, now);
            if let Some((step, call)) = written {
                steps.write(&report.label, report.nonce, step, call);
            }
            ended
        };
        Ok(shard.change_steps(&report.id, &self.0.room, 0, end).unwrap_or(Ended::Missing))
    }

    async fn resolve_step(&self, resolve: &ResolveStep) -> Result<StepResolved, StoreError> {
        let mut resolve = resolve.clone();
        if let StepVerdict::Happened(result) = &mut resolve.verdict {
            own(result);
        }
        let resolve = &resolve;
        let mut shard = self.shard(&resolve.id);
        let now = self.0.clock.now();
        let change = |kept: Option<(&_, &mut RecordSteps)>| {
            let Some((record, steps)) = kept else { return StepResolved::Missing };
            let Some(one) = steps.0.get_mut(&resolve.label) else { return StepResolved::Missing };
            let (resolved, written) = protocol::resolve(Some(record), one.step.as_ref(), resolve, now);
            if written.is_some() {
                one.step = written;
            }
            resolved
        };
        Ok(shard.change_steps(&resolve.id, &self.0.room, 0, change).unwrap_or(StepResolved::Missing))
    }

    async fn inspect_step(&self, id: &RecordId, label: &StepLabel) -> Result<Option<StepView>, StoreError> {
        let shard = self.shard(id);
        let now = self.0.clock.now();
        let Some((record, steps)) = shard.steps(id) else { return Ok(None) };
        let view = steps.0.get(label).and_then(|one| {
            let step = one.step.as_ref()?;
            let entry = protocol::entry(record, step, (*id, label), now)?;
            let mut calls: Vec<CallRecord> = one.calls.values().filter(|call| call.number > 0).cloned().collect();
            calls.sort_by_key(|call| call.number);
            Some(StepView { entry, standing: step.standing(now), calls })
        });
        Ok(view)
    }

    /// Looks at every record, a shard at a time: for operators, not for requests.
    async fn list_steps(&self, list: &ListSteps) -> Result<StepPage, StoreError> {
        let mut found: BTreeMap<(RecordId, StepLabel), StepEntry> = BTreeMap::new();
        for shard in &self.0.shards {
            let shard = shard.lock();
            let now = self.0.clock.now();
            let of_record = shard.all_steps().filter(|(id, ..)| list.id.is_none_or(|wanted| wanted == **id));
            for (id, record, steps) in of_record {
                for (label, one) in &steps.0 {
                    let key = (*id, label.clone());
                    let Some(step) = one.step.as_ref().filter(|_| list.after.as_ref().is_none_or(|after| key > *after))
                    else {
                        continue;
                    };
                    let entry = protocol::entry(record, step, (*id, label), now);
                    if let Some(entry) = entry.filter(|entry| list.state.is_none_or(|state| state == entry.state)) {
                        found.insert(key, entry);
                    }
                    if found.len() > list.limit.saturating_add(1) {
                        found.pop_last();
                    }
                }
            }
        }
        // One more than asked for says that there is another page.
        let more = found.len() > list.limit;
        let entries: Vec<StepEntry> = found.into_values().take(list.limit).collect();
        let next = if more { entries.last().map(|entry| (entry.id, entry.label.clone())) } else { None };
        Ok(StepPage { entries, next })
    }
}
