//! A refusal as `application/problem+json` (RFC 9457).

use std::borrow::Cow;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, Uri};
use idempotency::Timestamp;
use problem_details::{JsonProblemDetails, ProblemDetails};
use serde::Serialize;

use super::{PROBLEM_TYPES, Refusal, Responder};

/// How refusals are answered.
#[derive(Clone, Debug)]
pub(crate) struct Problems {
    base: Cow<'static, str>,
    link: Option<HeaderValue>,
    responder: Responder,
    /// The body of [`Refusal::InFlight`], once one was needed: it is always the same, and duplicates may come in storms.
    in_flight: OnceLock<Bytes>,
}

impl Problems {
    /// The URI in front of a problem type's last segment. The default is a URN: it names a problem and is no
    /// address, so that no host has to be there for it.
    pub(crate) const BASE: &str = "urn:tower-idempotency:problem:";

    /// With another base, such as `https://api.example.com/problems/`.
    pub(crate) fn base(&mut self, base: impl Into<Cow<'static, str>>) {
        self.base = base.into();
        self.in_flight = OnceLock::new();
    }

    /// With a link to the service's own rules for keys.
    pub(crate) fn docs(&mut self, url: &Uri) {
        self.link = HeaderValue::try_from(format!("<{url}>; rel=\"describedby\"")).ok();
    }

    /// With another body.
    pub(crate) fn responder(&mut self, responder: Responder) {
        self.responder = responder;
    }

    /// The URIs of all problem types.
    pub(crate) fn uris(&self) -> Vec<String> {
        PROBLEM_TYPES.iter().map(|name| format!("{}{name}", self.base)).collect()
    }

    /// The problem type's URI.
    pub(crate) fn uri(&self, refusal: &Refusal) -> String {
        format!("{}{}", self.base, refusal.problem_type())
    }

    /// The response, with the reason in its extensions whatever the responder did.
    pub(crate) fn answer(&self, refusal: Refusal) -> Response<Bytes> {
        let mut response = self.responder.respond(&refusal, self.problem_json(&refusal));
        response.extensions_mut().insert(refusal);
        response
    }

    fn problem_json(&self, refusal: &Refusal) -> Response<Bytes> {
        let mut response = Response::new(match refusal {
            Refusal::InFlight { .. } => self.in_flight.get_or_init(|| self.body(refusal)).clone(),
            _ => self.body(refusal),
        });
        *response.status_mut() = refusal.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JsonProblemDetails::<()>::CONTENT_TYPE));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(wait) = refusal.retry_after() {
            headers.insert(RETRY_AFTER, wait.as_secs().into());
        }
        if let Some(link) = &self.link {
            headers.insert(LINK, link.clone());
        }
        response
    }

    fn body(&self, refusal: &Refusal) -> Bytes {
        let problem = ProblemDetails::from_status_code(refusal.status())
            .with_title(refusal.title())
            .with_detail(refusal.detail())
            .with_extensions(Members::of(refusal, self.uri(refusal)));
        // Strings and numbers under fixed names: there is nothing that could fail to serialise.
        JsonProblemDetails::from(problem).to_body_string().unwrap_or_default().into()
    }
}

impl Default for Problems {
    fn default() -> Self {
        Self { base: Self::BASE.into(), link: None, responder: Responder::default(), in_flight: OnceLock::new() }
    }
}

/// The members beside those that every problem has.
#[derive(Serialize)]
struct Members<'r> {
    /// Here, because `problem_details` keeps it as an `http::Uri`, which holds neither a URN nor a fragment.
    r#type: String,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'r str>,
}

impl<'r> Members<'r> {
    fn of(refusal: &'r Refusal, r#type: String) -> Self {
        let mut members = Self {
            r#type,
            retryable: refusal.retryable(),
            since: None,
            attempt: None,
            first_status: None,
            completed_at: None,
            location: None,
            current_token: None,
            step: None,
        };
        match refusal {
            Refusal::OutcomeUnknown { since, attempt, .. } => {
                members.since = since.and_then(rfc3339);
                members.attempt = *attempt;
            }
            Refusal::ResponseNotKept { first_status, completed_at, location, .. } => {
                members.first_status = Some(*first_status);
                members.completed_at = rfc3339(*completed_at);
                members.location = location.as_deref();
            }
            Refusal::StepUnknown { step, .. }
            | Refusal::StepRequestChanged { step }
            | Refusal::StepResultNotKept { step, .. } => members.step = Some(step.as_str()),
            Refusal::FencingTokenSuperseded { current } => members.current_token = Some(current.get()),
            _ => {}
        }
        members
    }
}

/// None for a time outside the years that RFC 3339 can write.
fn rfc3339(time: Timestamp) -> Option<String> {
    let time = jiff::Timestamp::from_microsecond(time.micros()).ok()?;
    Some(time.to_string())
}
