//! Requests to the handler of `charge`, in process.

use std::fmt::Debug;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use idempotency_benches::timed;
use tower::{Service, ServiceExt as _};

use crate::charge::BODY;

pub(crate) fn request(key: Option<&str>) -> Request<Body> {
    let request = Request::post("/charge").header("content-type", "application/json");
    let request = key.into_iter().fold(request, |request, key| request.header("idempotency-key", key));
    request.body(Body::from(BODY)).unwrap()
}

/// Reads the answer to its end.
pub(crate) async fn send<S, B>(service: &S, request: Request<Body>, expected: StatusCode)
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug> + Clone,
    B: HttpBody<Error: Debug>,
{
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), expected);
    response.into_body().collect().await.unwrap().to_bytes();
}

/// One after the other.
pub(crate) async fn send_all<S, B>(service: &S, requests: Vec<Request<Body>>, expected: StatusCode)
where
    S: Service<Request<Body>, Response = Response<B>, Error: Debug> + Clone,
    B: HttpBody<Error: Debug>,
{
    for request in requests {
        send(service, request, expected).await;
    }
}

/// What it takes to send `n` requests. They are made before the clock runs, and few at once, so that they are as near to the processor
/// as those that a server has just read.
pub(crate) async fn time_of(
    n: u32,
    mut next: impl FnMut() -> Request<Body>,
    send: impl AsyncFn(Vec<Request<Body>>),
) -> Duration {
    let mut time = Duration::ZERO;
    for begun in (0..n).step_by(AT_ONCE as usize) {
        let requests = std::iter::repeat_with(&mut next).take(AT_ONCE.min(n - begun) as usize).collect();
        time += timed(send(requests)).await;
    }
    time
}

/// How many requests are made at once.
const AT_ONCE: u32 = 32;
