//! The published specification of an endpoint.

use idempotency::{InFlight, Recovery, Settings};
use jiff::SignedDuration;
use serde::Serialize;

use crate::layer::{Config, KeySource};
use crate::{KeyRequired, Outage};

/// The rules of a configured layer, to be served where clients can read them. A client can then stop retrying before the
/// window closes.
///
/// The `Idempotency-Key` draft obliges a server to publish them. Durations are ISO 8601.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Description {
    /// The header that carries the key; none when it is found by a function.
    pub key_header: Option<String>,
    /// Whether a request must carry a key.
    pub key_required: bool,
    /// The least and the greatest length of a key.
    pub key_length: [usize; 2],
    /// `opaque`, `uuid7` or `ulid`.
    pub key_format: &'static str,
    /// The greatest age of a time-ordered key.
    pub key_max_age: Option<SignedDuration>,
    /// What a key belongs to: `global`, `header` or `principal`.
    pub key_scope: &'static str,
    /// The methods that are protected.
    pub methods: Vec<String>,
    /// How long a response is replayed, from its completion.
    pub response_window: SignedDuration,
    /// How long the fact of execution is remembered, from its completion.
    pub tombstone_window: SignedDuration,
    /// How long it is remembered at most, from its completion, if requests that come after the response window keep the memory alive for
    /// another tombstone window each; none if they do not.
    pub tombstone_renewed_up_to: Option<SignedDuration>,
    /// `reject` or `wait`.
    pub in_flight: &'static str,
    /// The longest that a duplicate waits for the first one's outcome.
    pub in_flight_wait: Option<SignedDuration>,
    /// `hold` or `rerun`.
    pub recovery: &'static str,
    /// `refuse` or `pass`.
    pub store_outage: &'static str,
    /// The longest request body, in bytes.
    pub max_request_bytes: usize,
    /// The longest response body that is replayed, in bytes.
    pub max_response_bytes: usize,
    /// The header that marks a replay.
    pub replay_header: Option<String>,
    /// The `type` of every problem this layer answers with.
    pub problem_types: Vec<String>,
    /// Where the rules are documented.
    pub documentation: Option<String>,
}

impl Description {
    pub(crate) fn of(config: &Config, settings: &Settings) -> Self {
        let life = settings.life_setting();
        let (in_flight, in_flight_wait) = match settings.in_flight_setting() {
            InFlight::Reject => ("reject", None),
            InFlight::Wait(limit) => ("wait", Some(iso(limit))),
        };
        let length = config.key_rules.allowed_length();
        Self {
            key_header: match &config.key_source {
                KeySource::Header(name) => Some(name.to_string()),
                KeySource::Function(_) => None,
            },
            key_required: config.key_required == KeyRequired::Required,
            key_length: [*length.start(), *length.end()],
            key_format: config.key_format.as_str(),
            key_max_age: life.age().map(|age| iso(age.max_age)),
            key_scope: config.scope.describe(),
            methods: config.methods.iter().map(ToString::to_string).collect(),
            response_window: iso(life.windows().response()),
            tombstone_window: iso(life.windows().tombstone()),
            tombstone_renewed_up_to: life.windows().renewal_cap().map(iso),
            in_flight,
            in_flight_wait,
            recovery: match life.recovery() {
                Recovery::Hold => "hold",
                Recovery::Rerun => "rerun",
            },
            store_outage: match config.outage {
                Outage::Refuse => "refuse",
                Outage::Pass => "pass",
            },
            max_request_bytes: config.max_request,
            max_response_bytes: config.max_response,
            replay_header: config.replay_header.as_ref().map(ToString::to_string),
            problem_types: config.problems.uris(),
            documentation: config.docs.as_ref().map(ToString::to_string),
        }
    }
}

fn iso(duration: std::time::Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
