//! A state: the rows, the workers, what is on its way, and what the provider did.

use std::hash::{Hash, Hasher};

use idempotency::outbound::{CallRecord, LoggedEnd, StepRecord, StepStanding, StepStored};
use idempotency::{FencingToken, Timestamp};

use super::{CLIENTS, result};
use crate::records::state::Row;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) now: Timestamp,
    pub(super) row: Row,
    pub(super) step: StepRow,
    pub(super) clients: [Client; CLIENTS],
    pub(super) network: Vec<Message>,
    /// How often the provider did it.
    pub(super) charges: u8,
    pub(super) ticks: u8,
    pub(super) losses: u8,
    pub(super) copies: u8,
    pub(super) crashes: u8,
    /// A success was reported; somebody died, or reported that nobody knows.
    pub(super) reported: bool,
    pub(super) unknown: bool,
    pub(super) succeeded: bool,
    pub(super) failed: bool,
    pub(super) retried: bool,
    pub(super) reconciled: bool,
    pub(super) stood: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepRow {
    pub(super) step: Option<StepRecord>,
    pub(super) calls: Vec<(u8, CallRecord)>,
}

impl Hash for StepRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(step) = &self.step {
            let stored = match &step.stored {
                StepStored::Calling { late } => u8::from(late.is_some()),
                StepStored::Succeeded(_) => 2,
                StepStored::Failed(result) => 3 + u8::from(result.is_some()),
                StepStored::Unknown => 5,
                StepStored::Retryable => 6,
            };
            (stored, step.since, step.call, step.nonce, step.token, step.quiet_until).hash(state);
            (step.window_start, step.open, step.cleared).hash(state);
        }
        for (name, call) in &self.calls {
            (name, call.number, call.end.as_ref().map(rank)).hash(state);
        }
    }
}

fn rank(end: &LoggedEnd) -> u8 {
    match end {
        LoggedEnd::Unknown(_) => 0,
        LoggedEnd::NotDone(_) => 1,
        LoggedEnd::Refused(_) => 2,
        LoggedEnd::Done(_) => 3,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) requests: u8,
    pub(super) askings: u8,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Running(Own),
    Calling(Own, u8, Timestamp),
    Reporting(Own, u8, End),
    Concluded(Own, Conclusion),
    Crashed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Own {
    pub(super) token: FencingToken,
    pub(super) name: u8,
    /// `Attempt::has_open_step`.
    pub(super) open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Conclusion {
    Done,
    NotDone,
    Unknown,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named after `CallEnd`")]
pub enum End {
    Done,
    Refused,
    NotDone,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Message {
    Begin(FencingToken, u8, u8),
    End(u8, End),
}

impl State {
    pub(super) fn stands_done(&self) -> bool {
        let done =
            |step: &StepRecord| matches!(step.stored, StepStored::Succeeded(_) | StepStored::Calling { late: Some(_) });
        self.step.step.as_ref().is_some_and(done)
    }

    pub(super) fn stands_failed(&self) -> bool {
        self.step.step.as_ref().is_some_and(|step| matches!(step.standing(self.now), StepStanding::Failed(_)))
    }

    /// Nothing is under way, nobody died or lost sight of a call, and yet one is counted as under way or unknown.
    pub(super) fn is_stuck(&self) -> bool {
        let quiet = self.network.is_empty() && !self.unknown && self.clients.iter().all(|c| c.phase == Phase::Idle);
        let open = |step: &StepRecord| {
            matches!(step.standing(self.now), StepStanding::Calling { .. } | StepStanding::Unknown { .. })
        };
        quiet && self.step.step.as_ref().is_some_and(open)
    }
}

impl StepRow {
    pub(super) fn put(&mut self, asking: u8, call: CallRecord) {
        self.calls.retain(|(name, _)| *name != asking);
        self.calls.push((asking, call));
        self.calls.sort_unstable_by_key(|(name, _)| *name);
    }
}

impl End {
    pub(super) fn logged(self) -> LoggedEnd {
        match self {
            Self::Done => LoggedEnd::Done(result()),
            Self::Refused => LoggedEnd::Refused(result()),
            Self::NotDone => LoggedEnd::NotDone(String::new()),
            Self::Unknown => LoggedEnd::Unknown(String::new()),
        }
    }
}
