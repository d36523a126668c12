//! Reports of how calls ended.

use std::sync::Arc;
use std::time::Duration;

use super::contract::{EndCall, Ended, Steps};
use super::record::LoggedEnd;
use crate::patience::{Pauses, within};
use crate::{Attempt, StoreError};

pub(super) async fn report<S: Steps>(steps: &S, patience: Duration, end: &EndCall) -> Result<Ended, StoreError> {
    within(patience, steps.end_call(end)).await
}

/// Tries again in the background until the store answers, since this process alone knows how it ended; a drain waits for it.
pub(super) fn report_until_answered<S: Steps>(steps: Arc<S>, attempt: &Attempt, end: EndCall) {
    // Outside a runtime (a future dropped after its runtime is gone) there is nobody to do it.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let patience = attempt.store_timeout();
    let reporting = async move {
        let mut pauses = Pauses::in_background();
        loop {
            match report(&*steps, patience, &end).await {
                Ok(ended) => return heed(&ended, &end),
                Err(error) if error.is_final() => {
                    return tracing::error!(record_id = %end.id, step = %end.label, end = ?end.end, %error, "the end of a call cannot be recorded");
                }
                Err(error) => pauses.pause_after(&error).await,
            }
        }
    };
    metrics::counter!("idempotency_outbound_recorded_late_total").increment(1);
    attempt.tracker().spawn_on(reporting, &runtime);
}

/// Says aloud what somebody should look at.
pub(super) fn heed(ended: &Ended, end: &EndCall) {
    match ended {
        Ended::Logged { alarm: Some(alarm), .. } => {
            tracing::error!(record_id = %end.id, step = %end.label, %alarm, "the effect of a step may have happened twice");
            metrics::counter!("idempotency_outbound_alarms_total").increment(1);
        }
        Ended::Missing if matches!(end.end, LoggedEnd::Done(_)) => {
            tracing::error!(record_id = %end.id, step = %end.label, "a call was done whose record is gone");
            metrics::counter!("idempotency_outbound_alarms_total").increment(1);
        }
        _ => {}
    }
    if matches!(end.end, LoggedEnd::Unknown(_)) {
        metrics::counter!("idempotency_outbound_unknown_total").increment(1);
    }
}
