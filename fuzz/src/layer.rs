//! Whole requests, through the layer.

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use idempotency_memory::MemoryStore;
use serde_json::Value;
use tower::ServiceExt as _;
use tower_idempotency::{FencingLayer, IdempotencyLayer, KeyRequired, Refusal, Scope};

use super::{MARKER, marked, pieces};

/// What the handler says, which no refusal does.
const SAID: &str = "what the handler said";

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    refusal: Option<Refusal>,
    body: Bytes,
}

/// A key, a scope, a content type, a fencing token and a body; missing where a piece is missing. The request is sent, sent again, sent with
/// another body, and sent with a marker in every piece.
pub fn request(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let layer =
            IdempotencyLayer::new(MemoryStore::new(), Scope::header(http::HeaderName::from_static("x-account")));
        let layer = layer.key_required(KeyRequired::Required).max_request(1024);
        let app = Router::new().route("/", post(async || (StatusCode::CREATED, SAID)));
        let app = app.layer(layer).layer(FencingLayer::new());
        let body = pieces(data).nth(4).unwrap_or_default();
        let first = send(&app, data, body).await;
        let again = send(&app, data, body).await;
        let other = send(&app, data, &[body, b"."].concat()).await;
        let quoting = marked(data);
        let quoted = send(&app, &quoting, pieces(&quoting).nth(4).unwrap_or_default()).await;
        for answer in [&first, &again, &other, &quoted] {
            judge(answer);
        }
        match &first.refusal {
            None => {
                assert!(first.status == 201 && !first.headers.contains_key("idempotent-replayed"));
                assert_eq!((again.status, &again.body), (first.status, &first.body));
                assert_eq!(again.headers.get("idempotent-replayed"), Some(&HeaderValue::from_static("true")));
                let told = other.refusal.as_ref();
                assert!(matches!(told, Some(Refusal::KeyReused | Refusal::RequestTooLarge { .. })), "{told:?}");
            }
            refusal => {
                assert_eq!(again.refusal.as_ref(), refusal.as_ref(), "it depends on the request alone");
                assert_eq!(again.body, first.body);
            }
        }
    });
}

async fn send(app: &Router, data: &[u8], body: &[u8]) -> Answer {
    let mut request = Request::post("/").body(Body::from(body.to_vec())).expect("a request");
    let names = ["idempotency-key", "x-account", "content-type", "fencing-token"];
    for (name, piece) in names.into_iter().zip(pieces(data)) {
        if let Some(value) = HeaderValue::from_bytes(piece).ok().filter(|value| !value.is_empty()) {
            request.headers_mut().insert(name, value);
        }
    }
    let Ok(response) = app.clone().oneshot(request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Answer { status: parts.status, headers: parts.headers, refusal: parts.extensions.get().cloned(), body }
}

/// A refusal is a problem by RFC 9457 and quotes nothing of what was sent.
fn judge(answer: &Answer) {
    let Some(refusal) = &answer.refusal else {
        return assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, SAID.as_bytes()));
    };
    let problem: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(answer.headers[CONTENT_TYPE], "application/problem+json");
    assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
    assert_eq!(problem["status"], answer.status.as_u16());
    assert!(problem["type"].as_str().is_some_and(|name| name.ends_with(refusal.problem_type())), "{problem}");
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
    assert_eq!(problem["retryable"], answer.headers.contains_key(RETRY_AFTER));
    let said = format!("{} {:?}", String::from_utf8_lossy(&answer.body), answer.headers);
    assert!(!said.contains(MARKER) && !said.contains(SAID), "{said}");
}
