//! What a duplicate is told.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use idempotency::{Claimed, Doubt, Outcome, Tombstone};

use crate::body::ResponseBody;
use crate::layer::{Config, KeySource};
use crate::problem::{KeyFault, Refusal};
use crate::stored::StoredResponse;

/// In the extensions of a replayed response, for outer layers to log and count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed;

impl Config {
    /// The response to a claim that was not granted.
    pub(crate) fn answer<B>(&self, claimed: Claimed) -> Response<ResponseBody<B>> {
        let refusal = match claimed {
            Claimed::Replay { outcome, .. } => return self.replay(&outcome, Refusal::UNREADABLE),
            Claimed::Executed(tombstone) => return self.executed(tombstone),
            Claimed::InDoubt(doubt) => match &doubt.response {
                Some(response) => return self.replay(response, outcome_unknown(&doubt)),
                None => outcome_unknown(&doubt),
            },
            Claimed::InFlight { lease_left } => Refusal::in_flight(lease_left),
            Claimed::Mismatch => Refusal::KeyReused,
            Claimed::Unreadable => Refusal::UNREADABLE,
            Claimed::TooOld => Refusal::KeyExpired {
                answer: if self.is_webhook() { StatusCode::BAD_REQUEST } else { StatusCode::GONE },
            },
            Claimed::FromTheFuture => Refusal::KeyInvalid(KeyFault::FromTheFuture),
            Claimed::Full => Refusal::store_full(),
            // The engine keeps these to itself; if one came through, asking again is right.
            Claimed::Granted(_) | Claimed::Refused => Refusal::in_flight(std::time::Duration::ZERO),
        };
        self.refuse(refusal).map(ResponseBody::whole)
    }

    /// The recorded response, or `otherwise` when it cannot be read.
    fn replay<B>(&self, outcome: &Outcome, otherwise: Refusal) -> Response<ResponseBody<B>> {
        let stored = outcome.payload().and_then(|payload| StoredResponse::decode(payload).ok());
        let Some(stored) = stored else {
            return self.refuse(otherwise).map(ResponseBody::whole);
        };
        self.mark_replayed(stored.into_response())
    }

    fn executed<B>(&self, tombstone: Tombstone) -> Response<ResponseBody<B>> {
        let status = StatusCode::from_u16(tombstone.status);
        match (self.is_webhook(), status) {
            (true, Ok(status)) => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = status;
                self.mark_replayed(response)
            }
            _ => self.refuse(self.not_kept(tombstone)).map(ResponseBody::whole),
        }
    }

    fn not_kept(&self, tombstone: Tombstone) -> Refusal {
        Refusal::ResponseNotKept {
            first_status: tombstone.status,
            completed_at: tombstone.completed_at,
            location: tombstone.location,
            answer: self.not_kept_status,
        }
    }

    fn mark_replayed<B>(&self, mut response: Response<Bytes>) -> Response<ResponseBody<B>> {
        metrics::counter!("idempotency_replayed_total").increment(1);
        if let Some(name) = &self.replay_header {
            response.headers_mut().insert(name, HeaderValue::from_static("true"));
        }
        response.extensions_mut().insert(Replayed);
        response.map(ResponseBody::whole)
    }

    /// The key comes from a function: webhook senders disable an endpoint that answers 410.
    fn is_webhook(&self) -> bool {
        matches!(self.key_source, KeySource::Function(_))
    }
}

fn outcome_unknown(doubt: &Doubt) -> Refusal {
    Refusal::OutcomeUnknown { since: Some(doubt.since), attempt: Some(doubt.attempt), retry_after: None }
}
