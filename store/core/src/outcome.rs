//! What is recorded of an attempt.

use bytes::Bytes;

use crate::Timestamp;

/// The longest `Location` that a tombstone keeps, in bytes.
pub const LONGEST_LOCATION: usize = 64;

/// The recorded result of an attempt: a response, or a value. The payload is opaque to a store; whoever
/// made it put a format version in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    status: u16,
    location: Option<Box<str>>,
    payload: Option<Bytes>,
}

impl Outcome {
    /// An outcome whose payload is kept for the response window.
    #[must_use]
    pub fn new(status: u16, payload: Bytes) -> Self {
        Self { status, location: None, payload: Some(payload) }
    }

    /// An outcome whose payload is not kept: it is a tombstone at once.
    #[must_use]
    pub fn not_kept(status: u16) -> Self {
        Self { status, location: None, payload: None }
    }

    /// Adds where the result can be looked up, when that is at most [`LONGEST_LOCATION`] bytes.
    #[must_use]
    pub fn with_location(mut self, location: Option<&str>) -> Self {
        self.location = location.filter(|l| l.len() <= LONGEST_LOCATION).map(Into::into);
        self
    }

    /// The response's status; 0 for a value.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Where the result can be looked up.
    #[must_use]
    pub fn location(&self) -> Option<&str> {
        self.location.as_deref()
    }

    /// The response or value, if it is kept.
    #[must_use]
    pub const fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref()
    }

    /// The same without its payload.
    #[must_use]
    pub fn without_payload(self) -> Self {
        Self { payload: None, ..self }
    }

    /// The bytes that this outcome takes in a store, without overhead.
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.as_ref().map_or(0, Bytes::len) + self.location.as_ref().map_or(0, |l| l.len())
    }
}

/// That a key was executed, without its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The status of the first answer; 0 for a value.
    pub status: u16,
    /// When it completed, on the store's clock.
    pub completed_at: Timestamp,
    /// How long ago that was when the store answered.
    pub age: std::time::Duration,
    /// Where the result can be looked up, if that was short enough to keep.
    pub location: Option<Box<str>>,
}
