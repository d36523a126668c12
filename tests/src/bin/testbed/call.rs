//! A request to a route with an effect, taken apart.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, MatchedPath, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName};
use idempotency::FenceTicket;
use serde_json::Value;
use sfv::{BareItem, Parser};
use tower_idempotency::Attempt;

use crate::ledger::Effect;
use crate::problem::Problem;
use crate::switches::Switches;

/// What a handler is asked.
#[derive(Debug)]
pub(crate) struct Call {
    /// The path as the router knows it.
    pub(crate) route: String,
    /// None on a request without protection.
    pub(crate) attempt: Option<Attempt>,
    pub(crate) headers: HeaderMap,
    pub(crate) switches: Switches,
    pub(crate) body: Bytes,
    /// What a caller that holds a lease elsewhere presents.
    pub(crate) ticket: Option<FenceTicket>,
}

impl<S: Send + Sync> FromRequest<S> for Call {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let route = MatchedPath::from_request_parts(&mut parts, state).await.map_err(Problem::bad_request)?;
        let Query(switches) =
            Query::<Switches>::try_from_uri(&parts.uri).map_err(|fault| Problem::bad_request(fault.body_text()))?;
        let attempt = parts.extensions.get::<Attempt>().cloned();
        let ticket = parts.extensions.get::<FenceTicket>().copied();
        let headers = parts.headers.clone();
        let request = Request::from_parts(parts, body);
        let body = Bytes::from_request(request, state)
            .await
            .map_err(|fault| Problem::new(fault.status(), "bad-request", fault.body_text()))?;
        let mut switches = switches.checked()?;
        switches.is_a_retry = attempt.as_ref().is_some_and(|attempt| attempt.number() > 1);
        Ok(Self { route: route.as_str().to_owned(), attempt, headers, switches, body, ticket })
    }
}

impl Call {
    /// The effect that is asked for. Without protection the key is read from its header here.
    pub(crate) fn effect(&self, amount: i64) -> Effect {
        Effect {
            key: self.attempt.as_ref().map(|attempt| attempt.key().as_str().to_owned()).or_else(|| self.header_key()),
            route: self.route.clone(),
            resource: None,
            amount,
            token: self.attempt.as_ref().map(|attempt| attempt.token().get()),
            attempt: self.attempt.as_ref().map(Attempt::number),
            value: None,
        }
    }

    /// How long a counter is thought about between reading and writing, by the query or by a member of the body.
    pub(crate) fn think(&self) -> Duration {
        let said = serde_json::from_slice::<Value>(&self.body).ok().and_then(|body| body.get("think")?.as_u64());
        Duration::from_millis(self.switches.think.or(said).unwrap_or(0))
    }

    fn header_key(&self) -> Option<String> {
        const NAME: HeaderName = HeaderName::from_static("idempotency-key");
        let text = String::from_utf8_lossy(self.headers.get(NAME)?.as_bytes()).into_owned();
        match Parser::new(&text).parse::<sfv::Item>() {
            Ok(sfv::Item { bare_item: BareItem::String(key), .. }) => Some(key.as_str().to_owned()),
            _ => Some(text),
        }
    }

    /// The member `amount` of a JSON body. A body that is no JSON and does not say that it is (an upload) asks for 0, as an
    /// empty one and one without the member do.
    pub(crate) fn amount(&self) -> Result<i64, Problem> {
        if self.body.is_empty() {
            return Ok(0);
        }
        match serde_json::from_slice::<Value>(&self.body) {
            Ok(body) => body.get("amount").map_or(Ok(0), whole_number),
            Err(_) if self.is_another_media_type() => Ok(0),
            Err(fault) => Err(Problem::bad_request(format!("The body is not JSON: {fault}."))),
        }
    }

    fn is_another_media_type(&self) -> bool {
        let media_type = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        media_type.is_some_and(|text| !text.to_ascii_lowercase().contains("json"))
    }
}

/// `10`, and `10.0` too: the fingerprint tells them apart, an amount does not.
fn whole_number(amount: &Value) -> Result<i64, Problem> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() <= MOST).then_some(number as i64);
    amount
        .as_i64()
        .or_else(|| amount.as_f64().and_then(whole))
        .ok_or_else(|| Problem::bad_request("The amount is not a whole number."))
}
