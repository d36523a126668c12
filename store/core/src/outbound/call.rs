//! One call, and how it can end.

use std::time::Duration;

use bytes::Bytes;

use super::key::{KeyPlace, StepKey};
use super::record::{LoggedEnd, StepResult};
use crate::FencingToken;
use crate::time::BootInstant;

/// What a call is made with.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) number: u32,
    pub(super) reference: StepKey,
    pub(super) place: Option<KeyPlace>,
    pub(super) token: FencingToken,
    pub(super) deadline: BootInstant,
}

impl Call {
    /// Its number in the step, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The step's key, the same on every call: for a reference or free-text field, so that the provider can be asked about it later.
    #[must_use]
    pub const fn reference(&self) -> &StepKey {
        &self.reference
    }

    /// Where the provider wants the step's key and the key; none when it takes none, or when its window is over and it would take the
    /// key for a new one.
    #[must_use]
    pub fn idempotency_key(&self) -> Option<(&KeyPlace, &StepKey)> {
        Some((self.place.as_ref()?, &self.reference))
    }

    /// The attempt's token, for a provider that has a fence.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// Until the call is given up.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.deadline.since(BootInstant::now())
    }
}

/// How a call ended. When in doubt, it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// For certain nothing was done, because nothing was sent: the name was not found, the connection refused, TLS failed before the
    /// request. No answer yet is not this, nor is a connection that broke after it was made.
    NotDone(String),
    /// It was done, with this result.
    Done(Bytes),
    /// The provider refused it, by a refusal that it documents as having done nothing. This is final: the step is not called again.
    Refused(Bytes),
    /// Everything else: any timeout or reset after the request began, 5xx, half an answer.
    Unknown(String),
}

impl CallEnd {
    pub(super) fn logged(&self) -> LoggedEnd {
        match self {
            Self::NotDone(why) => LoggedEnd::NotDone(shortened(why)),
            Self::Done(result) => LoggedEnd::Done(StepResult::of(result.clone())),
            Self::Refused(result) => LoggedEnd::Refused(StepResult::of(result.clone())),
            Self::Unknown(why) => LoggedEnd::Unknown(shortened(why)),
        }
    }
}

fn shortened(why: &str) -> String {
    let mut end = why.len().min(LONGEST_WHY);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    why[..end].to_owned()
}

/// What is kept of a reason, in bytes.
const LONGEST_WHY: usize = 500;
