//! What workers do: the core's `Guard` and `Held`, and the store they ask.

use idempotency::outbound::{
    Again, BeginCall, Begun, EndCall, Ended, ResolveStep, StepRecord, StepStanding, StepStored, StepVerdict,
    protocol as steps,
};
use idempotency::protocol::{self as records, Decision};
use idempotency::{
    Claim, FencingToken, Fingerprint, Holder, Lease, Life, Outcome, Recovery, Stored, Timestamp, Windows,
};

use super::state::{Conclusion, End, Message, Own, Phase, State, StepRow};
use super::{Asked, Dropped, QUIET, Setting, Steps, label, nonce, result, send};
use crate::records::RECORD;
use crate::ticks::{TICK, ticks};

impl Steps {
    pub(super) const fn recovery(&self) -> Recovery {
        if matches!(self.setting, Setting::HeldRecords) { Recovery::Hold } else { Recovery::Rerun }
    }

    pub(super) fn claim(&self, state: &mut State, number: u8) {
        let client = &mut state.clients[usize::from(number)];
        client.requests -= 1;
        let name = 100 + number * 4 + client.requests;
        let claim = Claim {
            id: RECORD,
            fingerprint: Fingerprint::of(["x"]),
            nonce: nonce(name),
            lease: Lease::new(ticks(2)).unwrap_or_default(),
            life: Life::new(self.recovery(), Windows::new(ticks(8), ticks(8)).unwrap_or_default()),
            key_time: None,
            room: 64,
        };
        if let Decision::Grant = records::decide(state.row.0.as_ref(), &claim, state.now, Timestamp::MIN) {
            if !state.row.0.as_ref().is_some_and(|record| record.keeps_steps(state.now)) {
                state.step = StepRow::default();
            }
            let (record, grant) = records::grant(state.row.0.take(), &claim, state.now);
            state.row.0 = Some(record);
            client.phase = Phase::Running(Own { token: grant.token, name, open: false });
        }
    }

    pub(super) fn begin(&self, state: &mut State, token: FencingToken, name: u8, asking: u8) -> Begun {
        let ask = BeginCall {
            holder: Holder { id: RECORD, token, nonce: nonce(name) },
            label: label(),
            request: Fingerprint::of(["charge"]),
            nonce: nonce(asking),
            timeout: TICK,
            quiet: QUIET,
            lease_needed: TICK,
            again: if self.setting == Setting::Retry { Again::Within(ticks(8)) } else { Again::Never },
        };
        let known = state.step.calls.iter().find(|(name, _)| *name == asking).map(|(_, call)| call);
        let known = known.filter(|_| !self.lacks(Dropped::NonceBeginsOnce));
        let (begun, write) = steps::begin(state.row.0.as_ref(), state.step.step.as_ref(), known, &ask, state.now);
        if let Some((step, call)) = write {
            state.retried |= call.number > 1;
            state.step.step = Some(step);
            state.step.put(asking, call);
        }
        begun
    }

    pub(super) fn end(&self, state: &mut State, asking: u8, end: End) -> Ended {
        let report = EndCall { id: RECORD, label: label(), nonce: nonce(asking), end: end.logged() };
        let known = state.step.calls.iter().find(|(name, _)| *name == asking).map(|(_, call)| call.clone());
        let before = state.step.step.clone();
        let (ended, write) = steps::end(state.row.0.as_ref(), before.as_ref(), known.as_ref(), &report, state.now);
        if let Some((step, call)) = write {
            state.step.put(asking, call);
            if step.is_some() {
                state.step.step = step;
            }
        }
        state.reported |= end == End::Done && ended != Ended::Missing;
        state.unknown |= end == End::Unknown;
        self.forget_evidence(state, before, end);
        ended
    }

    /// What a step becomes without the rules of evidence.
    pub(super) fn forget_evidence(&self, state: &mut State, before: Option<StepRecord>, end: End) {
        let (Some(before), Some(step)) = (before, &mut state.step.step) else { return };
        let standing = before.standing(state.now);
        let open = matches!(standing, StepStanding::Unknown { .. } | StepStanding::Retryable);
        if self.lacks(Dropped::LateSuccessCounts) && open && end == End::Done {
            *step = before;
        } else if self.lacks(Dropped::LateSuccessOutweighs)
            && let StepStored::Calling { late } = &mut step.stored
        {
            *late = None;
        } else if self.lacks(Dropped::RefusalOfItsOwn) && end == End::Refused && step.stored == StepStored::Unknown {
            step.stored = StepStored::Failed(Some(result()));
        }
    }

    pub(super) fn ask(&self, state: &mut State, number: u8, asked: Asked) {
        let client = state.clients[usize::from(number)];
        let Phase::Running(own) = client.phase else { return };
        let asking = number * 8 + client.askings + 1;
        state.clients[usize::from(number)].askings += 1;
        let message = Message::Begin(own.token, own.name, asking);
        let mut unanswered = false;
        match asked {
            Asked::Answered => {}
            Asked::AnswerLost => {
                state.losses -= 1;
                let _ = self.begin(state, own.token, own.name, asking);
                unanswered = true;
            }
            Asked::NotYetArrived => {
                state.losses -= 1;
                send(&mut state.network, message);
                unanswered = true;
            }
            Asked::SecondTryAnswered => {
                state.copies -= 1;
                send(&mut state.network, message);
            }
        }
        if unanswered {
            // `Asking::take_back`.
            if !self.lacks(Dropped::TakenBack) {
                send(&mut state.network, Message::End(asking, End::NotDone));
            }
            let own = Own { open: true, ..own };
            state.clients[usize::from(number)].phase = Phase::Concluded(own, Conclusion::NotDone);
            return;
        }
        let begun = self.begin(state, own.token, own.name, asking);
        if asked == Asked::SecondTryAnswered
            && !matches!(begun, Begun::Go { .. })
            && !self.lacks(Dropped::LateTryTakenBack)
        {
            send(&mut state.network, Message::End(asking, End::NotDone));
        }
        let open = Own { open: true, ..own };
        state.clients[usize::from(number)].phase = match begun {
            Begun::Go { .. } => Phase::Calling(open, asking, state.now.after(TICK)),
            Begun::Stands { standing, .. } => {
                state.stood = true;
                match standing {
                    StepStanding::Succeeded(_) => Phase::Concluded(open, Conclusion::Done),
                    StepStanding::Failed(_) => Phase::Concluded(own, Conclusion::NotDone),
                    _ => Phase::Concluded(open, Conclusion::Unknown),
                }
            }
            _ => Phase::Concluded(own, Conclusion::NotDone),
        };
    }

    /// `Guard::reconcile`: the provider is asked, and the step resolved by what it says.
    pub(super) fn reconcile(&self, state: &mut State) {
        let Some(step) = &mut state.step.step else { return };
        if self.lacks(Dropped::QuietFirst) {
            step.quiet_until = state.now;
        }
        if !matches!(step.standing(state.now), StepStanding::Unknown { .. }) {
            return;
        }
        let verdict = match state.charges {
            0 => StepVerdict::DidNotHappen,
            _ => StepVerdict::Happened(result()),
        };
        let (who, why) = ("hook".to_owned(), "asked".to_owned());
        let resolve = ResolveStep { id: RECORD, label: label(), call_seen: step.call, verdict, who, why };
        let (_, write) = steps::resolve(state.row.0.as_ref(), Some(step), &resolve, state.now);
        if let Some(mut step) = write {
            step.resolution = None;
            state.step.step = Some(step);
            state.reconciled = true;
        }
    }

    pub(super) fn settle(&self, state: &mut State, own: Own, conclusion: Conclusion) {
        let holder = Holder { id: RECORD, token: own.token, nonce: nonce(own.name) };
        let (row, now) = (state.row.0.as_mut(), state.now);
        // `Held::may_release`.
        let may = self.recovery() == Recovery::Rerun || !own.open || self.lacks(Dropped::NotReleasedWhileOpen);
        let _ = match conclusion {
            Conclusion::Done => records::complete(row, &holder, &Outcome::not_kept(201), now),
            _ if may => records::release(row, &holder, ticks(8), now),
            _ => records::mark_in_doubt(row, &holder, None, now),
        };
        let released = state.row.0.as_ref().is_some_and(|record| record.stored == Stored::Released);
        if released && self.lacks(Dropped::SurviveRelease) {
            state.step = StepRow::default();
        }
    }
}
