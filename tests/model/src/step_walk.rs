//! Random walks of everything that can arrive about a record and its steps, in any order, late and twice: to be replayed against real
//! stores. What each is answered is told by the core's [`outbound::protocol`](idempotency::outbound::protocol) over one record and its steps, as in the
//! [model](crate::steps), and by the store of the [model of records](crate::records).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use idempotency::outbound::{
    Again, BeginCall, Begun, CallRecord, EndCall, Ended, LoggedEnd, ResolveStep, StepLabel, StepRecord, StepResolved,
    StepResult, StepStanding, StepStored, StepVerdict, StepView, protocol as steps,
};
use idempotency::protocol::{SweepStep, sweep_holding};
use idempotency::{FencingToken, Fingerprint, Holder, Nonce, RecordId, Settled, Stored, Timestamp};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::records::Records;
use crate::records::message::{self, Answer as RecordAnswer, Name, Own, Request};
use crate::records::state::Row;
use crate::ticks::{TICK, ticks};

/// What arrives.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "named after the operations")]
pub enum Op {
    Record(Request),
    Begin(BeginCall),
    End(EndCall),
    Resolve(ResolveStep),
    Sweep,
}

/// What it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the answers")]
pub enum Answer {
    Record(RecordAnswer),
    Begun(Begun),
    Ended(Ended),
    Resolved(StepResolved),
    Swept,
}

/// One arrival of a walk.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The store's clock.
    pub at: Timestamp,
    /// What arrives.
    pub op: Op,
    /// The answer.
    pub answer: Answer,
    /// The step that was asked about, or one that may be another for it, as an operator sees it afterwards.
    pub label: StepLabel,
    /// What is seen of it.
    pub view: Option<StepView>,
}

/// A rule of the store that the walks must miss when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A nonce begins one call at most.
    NonceBeginsOnce,
    /// Only who holds the record begins a call.
    HolderCompared,
    /// Nobody else calls while the last call may still leave.
    QuietFirst,
    /// A late success is recorded.
    LateSuccessCounts,
    /// While an earlier call may have happened, a refusal of this one is not the step's.
    RefusalOfItsOwn,
    /// A resolution is of the call that was seen.
    ResolveCompares,
    /// Steps survive the release of their record.
    SurviveRelease,
    /// A new life begins without steps.
    NewLifeBeginsWithout,
}

impl Dropped {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NonceBeginsOnce,
        Self::HolderCompared,
        Self::QuietFirst,
        Self::LateSuccessCounts,
        Self::RefusalOfItsOwn,
        Self::ResolveCompares,
        Self::SurviveRelease,
        Self::NewLifeBeginsWithout,
    ];
}

/// How to walk.
#[derive(Clone, Debug)]
pub struct StepWalk {
    /// Whose steps.
    pub id: RecordId,
    /// When it begins.
    pub origin: Timestamp,
    /// How long the store holds a row for its token.
    pub hold: Duration,
    /// Claims clear away what is over.
    pub tidies: bool,
    /// The rule that is dropped.
    pub dropped: Option<Dropped>,
}

#[derive(Default)]
struct OneStep {
    step: Option<StepRecord>,
    calls: Vec<(Nonce, CallRecord)>,
}

struct State {
    now: Timestamp,
    jumps: u8,
    row: Row,
    steps: BTreeMap<StepLabel, OneStep>,
    granted: Vec<Own>,
    sent: Vec<Op>,
}

impl StepWalk {
    /// A walk of so many arrivals.
    pub fn walk(&self, arrivals: usize, random: &mut impl rand::Rng) -> Vec<Arrival> {
        let records = Records::to_walk(self.origin, self.hold, 0);
        let mut state = State {
            now: self.origin,
            jumps: 2,
            row: Row(None),
            steps: BTreeMap::new(),
            granted: Vec::new(),
            sent: Vec::new(),
        };
        let mut walk = Vec::new();
        for _ in 0..arrivals {
            state.time_passes(random);
            let again = state.sent.choose(random).filter(|_| random.random_ratio(1, 6)).cloned();
            let op = again.unwrap_or_else(|| self.something(&records, &state, random));
            let answer = self.apply(&records, &mut state, &op);
            let label = match &op {
                Op::Begin(BeginCall { label, .. }) | Op::End(EndCall { label, .. }) => label.clone(),
                Op::Resolve(ResolveStep { label, .. }) => label.clone(),
                Op::Record(_) | Op::Sweep => label(random),
            };
            let view = state.view(self.id, &label);
            state.sent.push(op.clone());
            walk.push(Arrival { at: state.now, op, answer, label, view });
        }
        walk
    }

    fn something(&self, records: &Records, state: &State, random: &mut impl rand::Rng) -> Op {
        let holder = match state.granted.last() {
            Some(last) if random.random_ratio(4, 5) => Some(*last),
            _ => state.granted.choose(random).copied(),
        };
        let record = |op| Op::Record(records.request(op, self.id));
        let name = Name::new(random.random_range(0..3), random.random_range(0..3));
        let (label, nonce) = (label(random), Nonce::from_bytes([random.random_range(100..104); 16]));
        match (random.random_range(0..40), holder) {
            (0..4, _) | (_, None) => record(message::Op::Claim(name)),
            (4, Some(own)) => record(message::Op::Complete(own)),
            (5, Some(own)) => record(message::Op::Release(own)),
            (6, Some(own)) => record(message::Op::MarkInDoubt(own)),
            (7, Some(own)) if random.random() => record(message::Op::ResolveDidNotHappen(own.token, None)),
            (7, Some(own)) if random.random() => record(message::Op::Abandon(own.name)),
            (7..11, Some(own)) => record(message::Op::Renew(own)),
            (11..24, Some(own)) => Op::Begin(BeginCall {
                holder: Holder { id: self.id, token: own.token, nonce: own.name.nonce() },
                label,
                request: Fingerprint::of([if random.random_ratio(1, 10) { "other" } else { "charge" }]),
                nonce,
                timeout: TICK / 2,
                quiet: *[Duration::ZERO, TICK / 2].choose(random).unwrap_or(&TICK),
                lease_needed: TICK,
                again: if random.random() { Again::Never } else { Again::Within(ticks(2)) },
            }),
            (24..35, _) => {
                let end = match random.random_range(0..5) {
                    0 | 1 => LoggedEnd::Done(result(random)),
                    2 => LoggedEnd::Refused(result(random)),
                    3 => LoggedEnd::NotDone("not sent".to_owned()),
                    _ => LoggedEnd::Unknown("nobody knows".to_owned()),
                };
                Op::End(EndCall { id: self.id, label, nonce, end })
            }
            (35..39, _) => {
                let happened = random.random();
                let verdict = if happened { StepVerdict::Happened(result(random)) } else { StepVerdict::DidNotHappen };
                let (who, why) = ("operator".to_owned(), "looked".to_owned());
                let call_seen = random.random_range(1..3);
                Op::Resolve(ResolveStep { id: self.id, label, call_seen, verdict, who, why })
            }
            _ => Op::Sweep,
        }
    }

    fn apply(&self, records: &Records, state: &mut State, op: &Op) -> Answer {
        match op {
            Op::Record(request) => Answer::Record(self.apply_to_record(records, state, request)),
            Op::Begin(ask) => Answer::Begun(self.begin(state, ask)),
            Op::End(report) => Answer::Ended(self.end(state, report)),
            Op::Resolve(resolve) => {
                let one = state.steps.entry(resolve.label.clone()).or_default();
                let mut resolve = resolve.clone();
                if let Some(step) = one.step.as_ref().filter(|_| self.lacks(Dropped::ResolveCompares)) {
                    resolve.call_seen = step.call;
                }
                let (resolved, write) = steps::resolve(state.row.0.as_ref(), one.step.as_ref(), &resolve, state.now);
                one.step = write.or_else(|| one.step.take());
                Answer::Resolved(resolved)
            }
            Op::Sweep => {
                self.sweep(state);
                Answer::Swept
            }
        }
    }

    fn apply_to_record(&self, records: &Records, state: &mut State, request: &Request) -> RecordAnswer {
        let keeps = state.row.0.as_ref().is_some_and(|record| record.keeps_steps(state.now));
        let answer = records.apply(&mut state.row, request, state.now);
        match (request, &answer) {
            (Request::Claim(claim), RecordAnswer::Claimed(idempotency::Claimed::Granted(grant))) => {
                if !keeps && !self.lacks(Dropped::NewLifeBeginsWithout) {
                    state.steps.clear();
                }
                state.granted.push(Own { token: grant.token, name: Name::of(claim.nonce) });
            }
            (Request::Release(..), RecordAnswer::Settled(Settled::Applied)) if self.lacks(Dropped::SurviveRelease) => {
                state.steps.clear();
            }
            _ => {}
        }
        if self.tidies && matches!(request, Request::Claim(_)) {
            self.sweep(state);
        }
        answer
    }

    fn begin(&self, state: &mut State, ask: &BeginCall) -> Begun {
        let mut ask = ask.clone();
        if let Some(record) = state.row.0.as_ref().filter(|_| self.lacks(Dropped::HolderCompared)) {
            let token: Option<FencingToken> = record.token;
            ask.holder = Holder { token: token.unwrap_or(ask.holder.token), nonce: record.nonce, ..ask.holder };
        }
        if self.lacks(Dropped::QuietFirst) {
            ask.quiet = Duration::ZERO;
        }
        let one = state.steps.entry(ask.label.clone()).or_default();
        let known = one.call(ask.nonce).filter(|_| !self.lacks(Dropped::NonceBeginsOnce));
        let (begun, write) = steps::begin(state.row.0.as_ref(), one.step.as_ref(), known, &ask, state.now);
        if let Some((step, call)) = write {
            one.put(ask.nonce, Some(step), call);
        }
        begun
    }

    fn end(&self, state: &mut State, report: &EndCall) -> Ended {
        let one = state.steps.entry(report.label.clone()).or_default();
        let before = one.step.clone();
        let call = one.call(report.nonce);
        let (ended, write) = steps::end(state.row.0.as_ref(), before.as_ref(), call, report, state.now);
        if let Some((step, call)) = write {
            one.put(report.nonce, step, call);
        }
        if let (Some(before), Some(step)) = (before, &mut one.step) {
            let standing = before.standing(state.now);
            let open = matches!(standing, StepStanding::Unknown { .. } | StepStanding::Retryable);
            if self.lacks(Dropped::LateSuccessCounts) && open {
                *step = before;
            } else if let (LoggedEnd::Refused(result), StepStored::Unknown) = (&report.end, &step.stored)
                && self.lacks(Dropped::RefusalOfItsOwn)
            {
                step.stored = StepStored::Failed(Some(result.clone()));
            }
        }
        ended
    }

    fn sweep(&self, state: &mut State) {
        let has_steps = state.steps.values().any(|one| one.step.is_some() || !one.calls.is_empty());
        let Some(record) = &mut state.row.0 else { return };
        match sweep_holding(record, state.now, self.hold) {
            SweepStep::Keep => {}
            SweepStep::DropPayload => {
                if let Stored::Completed(outcome) = &mut record.stored {
                    *outcome = outcome.clone().without_payload();
                }
            }
            // What was released stays for its steps.
            SweepStep::Purge { .. }
                if has_steps && record.stored == Stored::Released && record.keeps_steps(state.now) => {}
            SweepStep::Purge { .. } => {
                state.row.0 = None;
                state.steps.clear();
            }
        }
    }

    fn lacks(&self, rule: Dropped) -> bool {
        self.dropped == Some(rule)
    }
}

impl State {
    fn time_passes(&mut self, random: &mut impl rand::Rng) {
        if self.jumps > 0 && random.random_ratio(1, 30) {
            self.jumps -= 1;
            // Beyond every window, and what a row is kept for; or beyond the windows alone.
            self.now = self.now.after(ticks(*[200, 7].choose(random).unwrap_or(&0)));
        } else if random.random_ratio(1, 3) {
            self.now = self.now.after(TICK / 2);
        }
    }

    fn view(&self, id: RecordId, label: &StepLabel) -> Option<StepView> {
        let (record, one) = (self.row.0.as_ref()?, self.steps.get(label)?);
        let step = one.step.as_ref()?;
        let entry = steps::entry(record, step, (id, label), self.now)?;
        let began = one.calls.iter().map(|(_, call)| call).filter(|call| call.number > 0);
        let mut calls: Vec<CallRecord> = began.cloned().collect();
        calls.sort_by_key(|call| call.number);
        Some(StepView { entry, standing: step.standing(self.now), calls })
    }
}

impl OneStep {
    fn call(&self, nonce: Nonce) -> Option<&CallRecord> {
        self.calls.iter().find(|(name, _)| *name == nonce).map(|(_, call)| call)
    }

    fn put(&mut self, nonce: Nonce, step: Option<StepRecord>, call: CallRecord) {
        self.step = step.or_else(|| self.step.take());
        self.calls.retain(|(name, _)| *name != nonce);
        self.calls.push((nonce, call));
    }
}

fn result(random: &mut impl rand::Rng) -> StepResult {
    StepResult::Kept(Bytes::copy_from_slice(&[random.random_range(0..3)]))
}

#[expect(clippy::unwrap_used, reason = "short words are labels")]
fn label(random: &mut impl rand::Rng) -> StepLabel {
    // Mostly one, so that something comes of it.
    StepLabel::parse(if random.random_ratio(1, 6) { "notify" } else { "charge" }).unwrap()
}
