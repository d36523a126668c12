//! What a store keeps of one step and of its calls.

use std::time::Duration;

use bytes::Bytes;

use super::contract::{StepStanding, StepState};
use crate::{FencingToken, Fingerprint, Nonce, Timestamp};

/// The longest result that is kept of a call, in bytes. What is longer is recorded without it.
pub const LONGEST_RESULT: usize = 64 * 1024;

/// The result of a call as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// Whole.
    Kept(Bytes),
    /// It was above [`LONGEST_RESULT`].
    TooLong,
}

impl StepResult {
    /// Keeps `result` if it is short enough.
    #[must_use]
    pub fn of(result: Bytes) -> Self {
        if result.len() <= LONGEST_RESULT { Self::Kept(result) } else { Self::TooLong }
    }

    /// The result, if it is kept.
    #[must_use]
    pub const fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Kept(bytes) => Some(bytes),
            Self::TooLong => None,
        }
    }

    /// What it takes in a store, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes().map_or(0, Bytes::len)
    }
}

/// Everything a store keeps of one step besides its calls, in whatever form. All decisions about it are in
/// [`protocol`](super::protocol); a store only reads it and writes it back, atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// What every call of this step must repeat.
    pub request: Fingerprint,
    /// What was last written.
    pub stored: StepStored,
    /// Since when it is `stored` so.
    pub since: Timestamp,
    /// The last call's number, from 1.
    pub call: u32,
    /// The last call's nonce.
    pub nonce: Nonce,
    /// The token of the attempt that began the last call.
    pub token: FencingToken,
    /// When the last call is given up by whoever makes it.
    pub deadline: Timestamp,
    /// When nobody expects the last call to leave any more: the deadline and the quiet period.
    pub quiet_until: Timestamp,
    /// When the first call that may have been sent began: from here the provider's window counts.
    pub window_start: Option<Timestamp>,
    /// How many calls may have happened, as far as is known for certain.
    pub open: u32,
    /// The calls up to this one were said not to have happened.
    pub cleared: u32,
    /// Who resolved it last, and why.
    pub resolution: Option<(String, String)>,
}

/// A step's state as last written. Time may have moved it on: see [`StepRecord::standing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepStored {
    /// A call is being made.
    Calling {
        /// An earlier call turned out to have succeeded meanwhile.
        late: Option<StepResult>,
    },
    /// Done.
    Succeeded(StepResult),
    /// For certain not done: by a documented refusal, which is final, or, without one, because nothing was sent.
    Failed(Option<StepResult>),
    /// Nobody knows.
    Unknown,
    /// Somebody found out that it did not happen: another call may follow.
    Retryable,
}

impl StepRecord {
    /// The state at `now`. A call whose quiet period is over is unknown, or what an earlier one turned out to be.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> StepStanding {
        match &self.stored {
            StepStored::Calling { .. } if now < self.quiet_until => {
                StepStanding::Calling { time_left: self.quiet_until.since(now) }
            }
            StepStored::Calling { late: Some(result) } | StepStored::Succeeded(result) => {
                StepStanding::Succeeded(result.clone())
            }
            StepStored::Calling { late: None } => StepStanding::Unknown { age: now.since(self.quiet_until) },
            StepStored::Failed(result) => StepStanding::Failed(result.clone()),
            StepStored::Unknown => StepStanding::Unknown { age: now.since(self.since) },
            StepStored::Retryable => StepStanding::Retryable,
        }
    }

    /// The state that people see at `now`.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> StepState {
        self.standing(now).state()
    }

    /// How long it has been in its state.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Duration {
        match &self.stored {
            StepStored::Calling { .. } if now >= self.quiet_until => now.since(self.quiet_until),
            _ => now.since(self.since),
        }
    }

    /// The bytes that its result takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.stored {
            StepStored::Calling { late: Some(result) }
            | StepStored::Succeeded(result)
            | StepStored::Failed(Some(result)) => result.size(),
            _ => 0,
        }
    }
}

/// One call in a step's log. It is never fenced and never deleted before its record: what is known of a call only grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Its number, from 1; 0 for one that was given up before it began.
    pub number: u32,
    /// The token of the attempt that began it; none for one that never began.
    pub token: Option<FencingToken>,
    /// When it began.
    pub begun_at: Timestamp,
    /// When its end was reported.
    pub ended_at: Option<Timestamp>,
    /// How it ended, as far as anybody reported.
    pub end: Option<LoggedEnd>,
}

/// How a call ended, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedEnd {
    /// Nobody knows; why.
    Unknown(String),
    /// Nothing was sent; why.
    NotDone(String),
    /// The provider refused it by a refusal that it documents.
    Refused(StepResult),
    /// It was done.
    Done(StepResult),
}

impl LoggedEnd {
    /// Better evidence replaces weaker.
    pub(super) const fn strength(&self) -> u8 {
        match self {
            Self::Unknown(_) => 0,
            Self::NotDone(_) | Self::Refused(_) => 1,
            Self::Done(_) => 2,
        }
    }

    /// The bytes that its result takes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Unknown(why) | Self::NotDone(why) => why.len(),
            Self::Refused(result) | Self::Done(result) => result.size(),
        }
    }
}
