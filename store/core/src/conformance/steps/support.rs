//! What behaviours are written with: a step of one key, whoever calls, and the situations that it can be in.

use std::time::Duration;

use bytes::Bytes;

use crate::conformance::Harness;
use crate::conformance::support::{Attempt, LEASE, Subject, ok};
use crate::outbound::{
    Again, Alarm, BeginCall, Begun, EndCall, Ended, ListSteps, LoggedEnd, ResolveStep, StepLabel, StepResolved,
    StepResult, StepStanding, StepState, StepVerdict, StepView, Steps,
};
use crate::{Fingerprint, Holder, Nonce};

pub(super) const TIMEOUT: Duration = Duration::from_secs(8);
pub(super) const QUIET: Duration = Duration::from_secs(7);
pub(super) const NEEDED: Duration = Duration::from_secs(10);
pub(super) const WINDOW: Duration = Duration::from_secs(40);
/// Longer than any of it.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(600);

pub(super) fn kept(result: &'static str) -> StepResult {
    StepResult::Kept(Bytes::from_static(result.as_bytes()))
}

pub(super) fn done(result: &'static str) -> LoggedEnd {
    LoggedEnd::Done(kept(result))
}

pub(super) fn refused(result: &'static str) -> LoggedEnd {
    LoggedEnd::Refused(kept(result))
}

pub(super) fn not_sent() -> LoggedEnd {
    LoggedEnd::NotDone("connection refused".to_owned())
}

pub(super) fn unknown() -> LoggedEnd {
    LoggedEnd::Unknown("no answer".to_owned())
}

/// Who calls, and for which step.
pub(super) struct Caller<'h, H> {
    pub(super) harness: &'h H,
    pub(super) holder: Holder,
    pub(super) label: StepLabel,
}

impl<'h, H: Harness> Caller<'h, H>
where
    H::Store: Steps,
{
    /// Of a new key that is run again after a lost attempt, with a long lease.
    pub(super) async fn new(harness: &'h H) -> Self {
        let subject = Subject::rerun(harness).but(|claim| claim.lease = crate::conformance::support::lease(LONG_LEASE));
        Self::of(&subject.grant().await)
    }

    /// The same with the usual lease.
    pub(super) async fn with_short_lease(harness: &'h H) -> (Subject<'h, H>, Self) {
        let subject = Subject::rerun(harness);
        let caller = Self::of(&subject.grant().await);
        (subject, caller)
    }

    pub(super) fn of(attempt: &Attempt<'h, H>) -> Self {
        Self { harness: attempt.harness, holder: attempt.holder, label: label("transfer") }
    }

    pub(super) fn named(&self, name: &str) -> Self {
        Self { label: label(name), harness: self.harness, holder: self.holder }
    }

    pub(super) fn ask(&self, nonce: Nonce) -> BeginCall {
        BeginCall {
            holder: self.holder,
            label: self.label.clone(),
            request: Fingerprint::of(["10 EUR"]),
            nonce,
            timeout: TIMEOUT,
            quiet: QUIET,
            lease_needed: NEEDED,
            again: Again::Never,
        }
    }

    pub(super) async fn send(&self, ask: &BeginCall) -> Begun {
        ok(self.harness.store().begin_call(ask).await)
    }

    pub(super) async fn begin(&self) -> Begun {
        self.send(&self.ask(Nonce::random())).await
    }

    /// Under the provider's key.
    pub(super) async fn begin_again(&self) -> Begun {
        self.send(&BeginCall { again: Again::Within(WINDOW), ..self.ask(Nonce::random()) }).await
    }

    /// Begins a call, which must be begun.
    pub(super) async fn call(&self) -> Nonce {
        let nonce = Nonce::random();
        let ask = BeginCall { again: Again::Within(WINDOW), ..self.ask(nonce) };
        let begun = self.send(&ask).await;
        assert!(matches!(begun, Begun::Go { .. }), "{begun:?}");
        nonce
    }

    pub(super) async fn end(&self, nonce: Nonce, end: LoggedEnd) -> Ended {
        let report = EndCall { id: self.holder.id, label: self.label.clone(), nonce, end };
        ok(self.harness.store().end_call(&report).await)
    }

    /// Reports an end that makes the step stand so, and no alarm.
    pub(super) async fn ends(&self, nonce: Nonce, end: LoggedEnd, standing: StepStanding) {
        assert_eq!(self.end(nonce, end).await, Ended::Logged { standing, alarm: None });
    }

    pub(super) async fn alarms(&self, nonce: Nonce, end: LoggedEnd) -> Option<Alarm> {
        match self.end(nonce, end).await {
            Ended::Logged { alarm, .. } => alarm,
            ended => panic!("not logged: {ended:?}"),
        }
    }

    pub(super) async fn resolve(&self, call_seen: u32, verdict: StepVerdict) -> StepResolved {
        let resolve = ResolveStep {
            id: self.holder.id,
            label: self.label.clone(),
            call_seen,
            verdict,
            who: "ops".to_owned(),
            why: "looked".to_owned(),
        };
        ok(self.harness.store().resolve_step(&resolve).await)
    }

    pub(super) async fn did_not_happen(&self, call_seen: u32) {
        assert_eq!(self.resolve(call_seen, StepVerdict::DidNotHappen).await, StepResolved::Applied);
    }

    pub(super) async fn view(&self) -> Option<StepView> {
        ok(self.harness.store().inspect_step(&self.holder.id, &self.label).await)
    }

    pub(super) async fn state(&self) -> Option<StepState> {
        self.view().await.map(|view| view.entry.state)
    }

    /// How it stands, without what changes as time goes by.
    pub(super) async fn standing(&self) -> Option<StepStanding> {
        self.view().await.map(|view| timeless(view.standing))
    }

    pub(super) async fn list(&self, list: &ListSteps) -> Vec<StepLabel> {
        let page = ok(self.harness.store().list_steps(list).await);
        page.entries.into_iter().map(|entry| entry.label).collect()
    }
}

pub(super) fn label(name: &str) -> StepLabel {
    StepLabel::parse(name).expect("a label")
}

pub(super) fn timeless(standing: StepStanding) -> StepStanding {
    match standing {
        StepStanding::Calling { .. } => StepStanding::Calling { time_left: Duration::ZERO },
        StepStanding::Unknown { .. } => StepStanding::Unknown { age: Duration::ZERO },
        other => other,
    }
}

/// What an asking came to, if it is no call.
#[track_caller]
pub(super) fn stands(begun: Begun) -> StepStanding {
    match begun {
        Begun::Stands { standing, .. } => timeless(standing),
        begun => panic!("not as it stands: {begun:?}"),
    }
}

#[track_caller]
pub(super) fn number(begun: &Begun) -> u32 {
    match begun {
        Begun::Go { call, .. } => *call,
        begun => panic!("not begun: {begun:?}"),
    }
}

/// What a step can be like after its first call, by the way it got there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    Calling,
    /// Nobody reported, and the quiet period is over.
    Silent,
    /// Reported as unknown.
    Unknown,
    NotSent,
    Refused,
    Done,
    /// Resolved as not having happened.
    No,
    /// Resolved as having happened.
    Yes,
}

impl Situation {
    pub(super) const ALL: [Self; 8] =
        [Self::Calling, Self::Silent, Self::Unknown, Self::NotSent, Self::Refused, Self::Done, Self::No, Self::Yes];

    pub(super) fn standing(self) -> StepStanding {
        match self {
            Self::Calling => StepStanding::Calling { time_left: Duration::ZERO },
            Self::Silent | Self::Unknown => StepStanding::Unknown { age: Duration::ZERO },
            Self::NotSent => StepStanding::Failed(None),
            Self::Refused => StepStanding::Failed(Some(kept("no"))),
            Self::Done | Self::Yes => StepStanding::Succeeded(kept("paid")),
            Self::No => StepStanding::Retryable,
        }
    }

    pub(super) async fn arrange<'h, H: Harness>(self, caller: &Caller<'h, H>) -> Nonce
    where
        H::Store: Steps,
    {
        let nonce = caller.call().await;
        match self {
            Self::Calling => {}
            Self::Silent => caller.harness.advance(TIMEOUT + QUIET).await,
            Self::Unknown => drop(caller.end(nonce, unknown()).await),
            Self::NotSent => drop(caller.end(nonce, not_sent()).await),
            Self::Refused => drop(caller.end(nonce, refused("no")).await),
            Self::Done => drop(caller.end(nonce, done("paid")).await),
            Self::No | Self::Yes => {
                caller.end(nonce, unknown()).await;
                let verdict = match self {
                    Self::Yes => StepVerdict::Happened(kept("paid")),
                    _ => StepVerdict::DidNotHappen,
                };
                assert_eq!(caller.resolve(1, verdict).await, StepResolved::Applied);
            }
        }
        assert_eq!(caller.standing().await, Some(self.standing()), "{self:?}");
        nonce
    }
}

// A usual lease covers one call.
const _: () = assert!(LEASE.as_secs() > NEEDED.as_secs() && LEASE.as_secs() < WINDOW.as_secs());
