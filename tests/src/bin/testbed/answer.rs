//! Bodies and headers of the handlers' answers.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

/// What kind of body an answer has.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    #[default]
    Json,
    /// All 256 byte values.
    Bytes,
    /// 204 without a body.
    Empty,
    /// The text `0`.
    Zero,
    /// Five chunks with pauses between them, and no length.
    Chunks,
    /// Five server-sent events with pauses between them.
    Sse,
    /// Half a body, then a break.
    Break,
}

/// An answer whose body is of this kind and `size` bytes long, unless it is longer anyway.
pub(crate) fn respond(kind: Kind, status: StatusCode, json: &impl Serialize, size: usize) -> Response {
    let of_type = |media_type: &'static str, body: Body| (status, [(CONTENT_TYPE, media_type)], body).into_response();
    match kind {
        Kind::Json => of_type("application/json", Body::from(padded(to_json(json), size))),
        Kind::Bytes => of_type("application/octet-stream", Body::from(all_bytes(size.max(256)))),
        Kind::Empty => StatusCode::NO_CONTENT.into_response(),
        Kind::Zero => of_type("text/plain", Body::from(padded("0".into(), size))),
        Kind::Chunks => of_type("text/plain", in_pieces(text_in_five(size), None)),
        Kind::Sse => of_type("text/event-stream", in_pieces(events(json, size), None)),
        Kind::Break => {
            let mut pieces = text_in_five(size);
            pieces.truncate(3);
            of_type("text/plain", in_pieces(pieces, Some(io::Error::other("asked to break off"))))
        }
    }
}

/// Headers that are easy to store or to replay wrongly.
pub(crate) fn add_headers(headers: &mut HeaderMap) {
    const LINES: [(HeaderName, &str); 7] = [
        (header::SET_COOKIE, "session=s3cret; Expires=Wed, 21 Oct 2037 07:28:00 GMT; HttpOnly"),
        (header::SET_COOKIE, "theme=dark"),
        (header::LINK, "<a>; rel=\"x\", <b>; rel=\"y\""),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"a,b.txt\""),
        (header::ETAG, "\"v1\""),
        (HeaderName::from_static("x-multi"), "one"),
        (HeaderName::from_static("x-multi"), "two"),
    ];
    for (name, value) in LINES {
        headers.append(name, HeaderValue::from_static(value));
    }
}

fn to_json(json: &impl Serialize) -> Vec<u8> {
    // Numbers and strings under fixed names: there is nothing that could fail to serialise.
    serde_json::to_vec(json).unwrap_or_default()
}

/// With spaces at its end, which JSON and text both bear.
fn padded(mut text: Vec<u8>, size: usize) -> Vec<u8> {
    text.resize(size.max(text.len()), b' ');
    text
}

fn all_bytes(size: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(size).collect()
}

/// Five pieces of a text that says where it is cut.
fn text_in_five(size: usize) -> Vec<Bytes> {
    let length = size.div_ceil(5).max(8);
    (1..=5).map(|n| padded(format!("piece {n}").into_bytes(), length).into()).collect()
}

fn events(json: &impl Serialize, size: usize) -> Vec<Bytes> {
    let json = String::from_utf8_lossy(&to_json(json)).into_owned();
    let event = |n| {
        let event = format!("id: {n}\ndata: {json}\n\n");
        let pad = (size / 5).saturating_sub(event.len() + 3);
        // A comment: clients skip it.
        if pad > 0 { format!(":{}\n\n{event}", "x".repeat(pad)) } else { event }
    };
    (1..=5).map(|n| event(n).into()).collect()
}

/// A body of unknown length, with a pause before each piece but the first.
fn in_pieces(pieces: Vec<Bytes>, end: Option<io::Error>) -> Body {
    let pieces = pieces.into_iter().map(Ok).chain(end.map(Err)).enumerate();
    Body::from_stream(stream::iter(pieces).then(async |(n, piece)| {
        if n > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        piece
    }))
}

/// Between two pieces of a body.
const PAUSE: Duration = Duration::from_millis(50);
