//! One request, its calls, and how each of them ends.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::BodyExt as _;
use idempotency::outbound::{Call, CallEnd, KeyPlace, Provider};
use tokio::time::timeout;
use tower_service::Service;

use super::error::OutboundError;
use super::layer::{KeyField, Rules};
use crate::body::BoxError;
use crate::stored::{self, SetCookie, StoredResponse};

/// A request that was read whole. Cheap to clone.
#[derive(Clone)]
pub(super) struct Exchange(Arc<Inner>);

struct Inner {
    parts: Parts,
    body: Bytes,
    provider: Provider,
    rules: Rules,
    place: Option<Place>,
    remarks: Mutex<(Option<BoxError>, bool)>,
}

enum Place {
    Header(HeaderName),
    Field(String, Arc<KeyField>),
}

impl Exchange {
    pub(super) fn new(parts: Parts, body: Bytes, provider: Provider, rules: Rules) -> Result<Self, OutboundError> {
        let place = match (provider.keys().map(|keys| keys.place()), &rules.key_field) {
            (None, _) => None,
            (Some(KeyPlace::Header(name)), _) => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| OutboundError::KeyNotPlaced)?;
                Some(Place::Header(name))
            }
            (Some(KeyPlace::Field(name)), Some(put)) => Some(Place::Field(name.clone(), Arc::clone(put))),
            (Some(KeyPlace::Field(_)), None) => return Err(OutboundError::KeyNotPlaced),
        };
        Ok(Self(Arc::new(Inner { parts, body, provider, rules, place, remarks: Mutex::default() })))
    }

    /// Makes one call with `client`, and reads the answer to its end.
    pub(super) fn make<S, ReqBody, ResBody>(
        &self,
        mut client: S,
        call: Call,
    ) -> impl Future<Output = CallEnd> + use<S, ReqBody, ResBody>
    where
        S: Service<Request<ReqBody>, Response = Response<ResBody>>,
        S::Error: Into<BoxError>,
        ReqBody: From<Bytes>,
        ResBody: Body,
        ResBody::Error: Into<BoxError>,
    {
        let exchange = self.clone();
        async move {
            exchange.remark(None, false);
            // Given up before the call is, by whom it would count as made.
            match timeout(call.time_left().mul_f64(READY_SHARE), poll_fn(|cx| client.poll_ready(cx))).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return exchange.failed(error.into(), CallEnd::NotDone),
                Err(_) => return CallEnd::NotDone("the client did not become ready in time".to_owned()),
            }
            let request = match exchange.request(call) {
                Ok(request) => request,
                Err(end) => return end,
            };
            match client.call(request).await {
                Ok(response) => exchange.conclude(response).await,
                Err(error) => {
                    let error = error.into();
                    let is_certain = exchange.0.rules.is_not_sent(&error);
                    exchange.failed(error, if is_certain { CallEnd::NotDone } else { CallEnd::Unknown })
                }
            }
        }
    }

    /// The client's last error, and whether the last answer was longer than what is read.
    pub(super) fn remarks(&self) -> (Option<BoxError>, bool) {
        std::mem::take(&mut *self.0.remarks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remark(&self, error: Option<BoxError>, is_cut: bool) {
        *self.0.remarks.lock().unwrap_or_else(PoisonError::into_inner) = (error, is_cut);
    }

    fn failed(&self, error: BoxError, end: fn(String) -> CallEnd) -> CallEnd {
        let end = end(with_sources(&*error));
        self.remark(Some(error), false);
        end
    }

    /// The request with the step's key where the provider wants it, and without one that somebody else put there.
    fn request<B: From<Bytes>>(&self, call: Call) -> Result<Request<B>, CallEnd> {
        let Inner { parts, body, place, .. } = &*self.0;
        let (mut parts, mut body) = (parts.clone(), body.clone());
        let key = call.idempotency_key().map(|(_, key)| key);
        match place {
            None => {}
            Some(Place::Header(name)) => {
                parts.headers.remove(name);
                if let Some(key) = key {
                    let value = HeaderValue::from_str(key.as_str());
                    let value = value.map_err(|_| CallEnd::NotDone("the key is no header value".to_owned()))?;
                    parts.headers.insert(name, value);
                }
            }
            Some(Place::Field(name, put)) => {
                if let Some(key) = key {
                    body = put(name, key, body);
                    parts.headers.remove(CONTENT_LENGTH);
                }
            }
        }
        parts.extensions.insert(call);
        Ok(Request::from_parts(parts, body.into()))
    }

    /// What the provider's answer says. Half of one says nothing.
    async fn conclude<B>(&self, response: Response<B>) -> CallEnd
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = response.into_parts();
        let (body, is_cut) = match read(body, self.0.rules.max_response).await {
            Ok(read) => read,
            Err(error) => return self.failed(error, |why| CallEnd::Unknown(format!("the answer broke off: {why}"))),
        };
        let kept = stored::keep(&parts.headers, SetCookie::NeverStored);
        let result = StoredResponse::encode(parts.status, &kept, &body);
        self.remark(None, is_cut);
        match self.0.provider.ending(parts.status.as_u16(), &body, result.clone()) {
            // The provider's own classification says which it is; what is kept is the response.
            CallEnd::Done(_) => CallEnd::Done(result),
            CallEnd::Refused(_) => CallEnd::Refused(result),
            end => end,
        }
    }
}

/// Reads an answer to its end, or until it is longer than `limit`: then what was read of it, and that it was cut.
async fn read<B>(body: B, limit: usize) -> Result<(Bytes, bool), BoxError>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(Into::into)?.into_data() {
            read.put(data);
        }
        if read.len() > limit {
            return Ok((read.freeze(), true));
        }
    }
    Ok((read.freeze(), false))
}

/// How much of a call's time its client has to become ready; the rest is for the call.
const READY_SHARE: f64 = 0.9;

fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
