//! Requests to the handler of `charge`, in process.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use tower::ServiceExt as _;

use crate::charge::BODY;

pub(crate) fn request(key: Option<&str>) -> Request<Body> {
    let request = Request::post("/charge").header("content-type", "application/json");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    request.body(Body::from(BODY)).unwrap()
}

/// Reads the answer to its end.
pub(crate) async fn send(app: &Router, request: Request<Body>, expected: StatusCode) {
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), expected);
    axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
}
