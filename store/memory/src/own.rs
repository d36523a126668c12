//! Outcomes that hold nothing but their own bytes.

use bytes::Bytes;
use idempotency::Outcome;

/// A copy of it. `Bytes` may be a slice of something much larger, a read buffer or a row, which would stay in memory
/// with it, uncounted.
pub(crate) fn own(outcome: &Outcome) -> Outcome {
    let copy = match outcome.payload() {
        Some(payload) => Outcome::new(outcome.status(), Bytes::copy_from_slice(payload)),
        None => Outcome::not_kept(outcome.status()),
    };
    copy.with_location(outcome.location())
}
