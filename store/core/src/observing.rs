//! What an operator sees of the windows: how late duplicates come, and what may have run twice.

use std::time::Duration;

use crate::time::{Clock as _, SystemClock};
use crate::{Claim, Claimed, Grant, Operation};

/// Counts how old what is on record was when a duplicate came, by what it was told: `replay`, `tombstone`, `in-doubt`; or how old its key
/// was, when no record answered: `expired`.
pub(crate) fn duplicate(claimed: &Claimed, operation: &Operation) {
    // Each answer is written out: a label that is not known to the compiler costs an allocation, recorder or not.
    let (ages, age) = match claimed {
        Claimed::Replay { age, .. } => {
            (metrics::histogram!("idempotency_duplicate_age_seconds", "answer" => "replay"), *age)
        }
        Claimed::Executed(tombstone) => {
            (metrics::histogram!("idempotency_duplicate_age_seconds", "answer" => "tombstone"), tombstone.age)
        }
        Claimed::InDoubt(doubt) => {
            (metrics::histogram!("idempotency_duplicate_age_seconds", "answer" => "in-doubt"), doubt.age)
        }
        Claimed::TooOld => {
            (metrics::histogram!("idempotency_duplicate_age_seconds", "answer" => "expired"), key_age(operation))
        }
        _ => return,
    };
    ages.record(age.as_secs_f64());
}

/// Counts a grant that may be a second execution: one that was made by forgetting a doubt, and a first attempt with a key that says
/// it was made longer ago than anything is remembered, where no age limit refuses it. What an opaque key says is up to the client, who
/// can raise this count with every request, but should not be able to fill the log.
pub(crate) fn granted(claim: &Claim, grant: &Grant, operation: &Operation) {
    if grant.possible_escape {
        tracing::warn!(record_id = %claim.id, "a record in doubt was forgotten: its effect may happen twice");
        escape(DOUBT);
    }
    let forgotten = claim.life.age().is_none() && key_age(operation) > claim.life.windows().tombstone();
    if forgotten && grant.attempt == 1 {
        tracing::debug!(record_id = %claim.id, "the key is older than the tombstone window: it may have run before");
        escape("old-key");
    }
}

/// Doubts that a sweep forgot.
pub(crate) fn doubts_forgotten(count: usize) {
    metrics::counter!(ESCAPES, "reason" => DOUBT).increment(count as u64);
}

fn escape(reason: &'static str) {
    metrics::counter!(ESCAPES, "reason" => reason).increment(1);
}

/// On this node's clock, since nothing is decided by it; zero for a key that does not say when it was made.
fn key_age(operation: &Operation) -> Duration {
    operation.key_time.map_or(Duration::ZERO, |made| SystemClock.now().since(made))
}

const ESCAPES: &str = "idempotency_possible_escapes_total";
const DOUBT: &str = "in-doubt";
