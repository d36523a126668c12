//! A response as bytes that a store keeps, and which of its headers are kept.
//!
//! Version 1, lengths as LEB128 varints:
//!
//! ```text
//! 1  status (2 bytes, big endian)
//!    number of headers
//!    for each: length of name, name, length of value, value
//!    length of body, body
//! ```
//!
//! Records outlive releases: what a version wrote stays readable, and a version that is not known is an
//! error of its own, never a new request.

use std::fmt;

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SET_COOKIE};
use http::{Response, StatusCode};
use smallvec::SmallVec;

const VERSION: u8 = 1;

/// A response that was read back.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) status: StatusCode,
    /// In the order they were stored, repeated lines apart.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl StoredResponse {
    /// The bytes to store, written in one allocation. The headers are those that [`keep`] left.
    pub(crate) fn encode(status: StatusCode, headers: &[(&HeaderName, &HeaderValue)], body: &[u8]) -> Bytes {
        let lines = headers.iter().map(|(name, value)| field_size(name.as_str().len()) + field_size(value.len()));
        let size = 3 + varint_size(headers.len()) + lines.sum::<usize>() + field_size(body.len());
        let mut out = Vec::with_capacity(size);
        out.push(VERSION);
        out.extend_from_slice(&status.as_u16().to_be_bytes());
        push_varint(&mut out, headers.len());
        for (name, value) in headers {
            push_field(&mut out, name.as_str().as_bytes());
            push_field(&mut out, value.as_bytes());
        }
        push_field(&mut out, body);
        debug_assert_eq!(out.len(), size);
        out.into()
    }

    /// Reads what [`StoredResponse::encode`] wrote. Body and header values are slices of `stored`.
    pub(crate) fn decode(stored: &Bytes) -> Result<Self, UnreadableResponse> {
        let mut rest = stored.clone();
        match rest.try_get_u8().map_err(|_| UnreadableResponse::Malformed)? {
            VERSION => Self::decode_v1(rest).ok_or(UnreadableResponse::Malformed),
            version => Err(UnreadableResponse::UnknownVersion(version)),
        }
    }

    fn decode_v1(mut rest: Bytes) -> Option<Self> {
        let status = StatusCode::from_u16(rest.try_get_u16().ok()?).ok()?;
        let mut headers = HeaderMap::new();
        // The number is not trusted with an allocation: every header is read before it is counted on.
        for _ in 0..take_varint(&mut rest)? {
            let name = HeaderName::from_bytes(&take_field(&mut rest)?).ok()?;
            let value = HeaderValue::from_maybe_shared(take_field(&mut rest)?).ok()?;
            headers.try_append(name, value).ok()?;
        }
        let body = take_field(&mut rest)?;
        rest.is_empty().then_some(Self { status, headers, body })
    }

    pub(crate) fn into_response(self) -> Response<Bytes> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

/// Without header values and body, which a log has no business with.
impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, headers, body } = self;
        write!(f, "StoredResponse({status}, {} headers, {} bytes)", headers.len(), body.len())
    }
}

/// Why a stored response cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnreadableResponse {
    /// Written by a release that this one does not know.
    #[error("the stored response has format version {0}, which this release does not know")]
    UnknownVersion(u8),
    /// Cut off, or not written by this crate.
    #[error("the stored response is malformed")]
    Malformed,
}

/// Whether `Set-Cookie` lines are stored and replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SetCookie {
    /// They reach the first client and are not stored.
    #[default]
    NeverStored,
    /// They are stored and replayed to whoever repeats the request. A session cookie is then kept in the
    /// store, and a replay can overwrite a newer one in the client.
    StoredAndReplayed,
}

/// The headers of a response that are stored: all that the handler said, and nothing that belongs to the
/// connection, to the one exchange, or to the layers outside.
pub(crate) fn keep(headers: &HeaderMap, set_cookie: SetCookie) -> SmallVec<[(&HeaderName, &HeaderValue); 8]> {
    let has_connection = headers.contains_key(CONNECTION);
    let kept = |name: &HeaderName| {
        let allowed = if name == SET_COOKIE { set_cookie == SetCookie::StoredAndReplayed } else { !never_stored(name) };
        allowed && !(has_connection && named_by_connection(headers, name))
    };
    headers.iter().filter(|(name, _)| kept(name)).collect()
}

fn never_stored(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Hop-by-hop (RFC 9110 section 7.6.1), recomputed, about this one exchange, or about this one client.
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "content-length"
            | "date"
            | "age"
            | "retry-after"
            | "server-timing"
            | "alt-svc"
            | "traceparent"
            | "tracestate"
            | "x-request-id"
            | "clear-site-data"
            | "www-authenticate"
            | "authentication-info"
            | "dpop-nonce"
    ) || ["proxy-", "access-control-", "ratelimit", "x-ratelimit-"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether the `Connection` header makes `name` hop-by-hop.
fn named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&b| b == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
}

fn field_size(length: usize) -> usize {
    varint_size(length) + length
}

fn push_field(out: &mut Vec<u8>, field: &[u8]) {
    push_varint(out, field.len());
    out.extend_from_slice(field);
}

fn take_field(from: &mut Bytes) -> Option<Bytes> {
    let length = take_varint(from)?;
    (length <= from.len()).then(|| from.split_to(length))
}

fn varint_size(number: usize) -> usize {
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

fn push_varint(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7F {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A number in its shortest spelling: a longer one was not written here.
fn take_varint(from: &mut Bytes) -> Option<usize> {
    let mut number = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let byte = from.try_get_u8().ok()?;
        let bits = usize::from(byte & 0x7F);
        number |= bits.checked_shl(shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests;
