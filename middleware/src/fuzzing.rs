//! What reads and writes bytes that others made, as the fuzz targets need it. No part of the API.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use idempotency::{FenceTicket, Fingerprint, Key, KeyRules};

use crate::stored::{SetCookie, StoredResponse, keep};
use crate::{FingerprintRule, InvalidFencingToken, InvalidKeyHeader, fencing, fingerprint, header_key};

pub fn key(headers: &HeaderMap, name: &HeaderName, rules: &KeyRules) -> Result<Option<Key>, InvalidKeyHeader> {
    header_key::parse(headers, name, rules)
}

pub fn ticket(headers: &HeaderMap) -> Result<Option<FenceTicket>, InvalidFencingToken> {
    fencing::parse(headers)
}

#[must_use]
pub fn ticket_value(ticket: &FenceTicket) -> Option<HeaderValue> {
    fencing::value(ticket)
}

#[must_use]
pub fn canonical_json(body: &[u8]) -> Option<Vec<u8>> {
    fingerprint::canonical_json(body, <[u8]>::to_vec)
}

/// Of a POST to `/` with this body.
#[must_use]
pub fn fingerprint(content_type: &str, body: &[u8]) -> Fingerprint {
    fingerprint_of(content_type, &Bytes::copy_from_slice(body))
}

/// The same without a copy of the body.
#[must_use]
pub fn fingerprint_of(content_type: &str, body: &Bytes) -> Fingerprint {
    let (mut parts, ()) = Request::new(()).into_parts();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        parts.headers.insert(CONTENT_TYPE, content_type);
    }
    FingerprintRule::default().compute(&parts, ("/", None), body)
}

/// As a response is stored.
#[must_use]
pub fn encode(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Bytes {
    StoredResponse::encode(status, &keep(headers, SetCookie::StoredAndReplayed), body)
}

/// All of its headers, also those that are never stored.
#[must_use]
pub fn encode_all(response: &Response<Bytes>) -> Bytes {
    let headers: Vec<_> = response.headers().iter().collect();
    StoredResponse::encode(response.status(), &headers, response.body())
}

#[must_use]
pub fn decode(stored: &Bytes) -> Option<Response<Bytes>> {
    StoredResponse::decode(stored).ok().map(StoredResponse::into_response)
}
