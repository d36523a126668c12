//! An HTTP client that sends each request once.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;

use crate::Reply;

/// A client of one server, over pooled connections. It never sends a request a second time by itself, and gives up on one
/// after a minute. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: legacy::Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Client {
    /// A client that speaks HTTP/1.1 to the server at `url`.
    #[must_use]
    pub fn http1(url: &str) -> Self {
        Self::new(url, &mut legacy::Client::builder(TokioExecutor::new()))
    }

    /// A client that speaks HTTP/2 to the server at `url`, without asking first, over one connection.
    #[must_use]
    pub fn http2(url: &str) -> Self {
        Self::new(url, legacy::Client::builder(TokioExecutor::new()).http2_only(true))
    }

    fn new(url: &str, builder: &mut legacy::Builder) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self { inner: builder.retry_canceled_requests(false).build(connector), url: url.to_owned() }
    }

    /// A request, to be completed and sent.
    pub fn call(&self, method: Method, path: &str) -> Call<'_> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.body(Full::default()).expect("a usable path");
        Call { client: self, request }
    }

    /// Posts JSON under a key.
    pub async fn post(&self, path: &str, key: &str, json: &Value) -> Reply {
        self.call(Method::POST, path).key(key).json(json).reply().await
    }

    /// Gets a page.
    pub async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path).reply().await
    }
}

/// A request that is being put together.
#[derive(Debug)]
#[must_use = "nothing is sent before `send` or `reply`"]
pub struct Call<'c> {
    client: &'c Client,
    request: Request<Full<Bytes>>,
}

impl Call<'_> {
    /// Adds `Idempotency-Key`.
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Adds a header line. Two of the same name are two lines.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        self.request.headers_mut().append(name, value.parse().expect("a header value"));
        self
    }

    /// With this JSON as its body.
    pub fn json(mut self, json: &Value) -> Self {
        self.request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body(json.to_string())
    }

    /// With these bytes as its body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        *self.request.body_mut() = Full::new(body.into());
        self
    }

    /// Sends it and reads the response. Dropped before its end, the connection or stream is closed.
    ///
    /// # Errors
    /// [`SendError`] when there is no whole response.
    pub async fn send(self) -> Result<Reply, SendError> {
        timeout(LONGEST, self.exchange()).await.unwrap_or(Err(SendError::Silent))
    }

    async fn exchange(self) -> Result<Reply, SendError> {
        let response = self.client.inner.request(self.request).await.map_err(SendError::NoAnswer)?;
        let (head, mut body) = response.into_parts();
        let mut read = Vec::new();
        let mut broken = false;
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(data) => read.extend_from_slice(&data.unwrap_or_default()),
                Err(_) => broken = true,
            }
        }
        let reply = Reply { status: head.status, headers: head.headers, body: read.into() };
        if broken { Err(SendError::BrokenOff(Box::new(reply))) } else { Ok(reply) }
    }

    /// Sends it and reads the response, which must come.
    pub async fn reply(self) -> Reply {
        self.send().await.unwrap_or_else(|error| panic!("no reply: {error}: {error:?}"))
    }
}

/// Why there is no whole response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No connection, or it ended before a response began.
    #[error("no answer")]
    NoAnswer(#[source] legacy::Error),
    /// The response ended before its end. As far as it came.
    #[error("the response broke off")]
    BrokenOff(Box<Reply>),
    /// No response within a minute.
    #[error("no whole answer within a minute")]
    Silent,
}

/// How long a response is waited for.
const LONGEST: Duration = Duration::from_secs(60);
