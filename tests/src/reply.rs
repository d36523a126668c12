//! A response that was read to its end.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// A response that was read to its end.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// A header's value; none when it is missing or sent more than once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.get_all(name).iter();
        let value = lines.next()?.to_str().ok()?;
        lines.next().is_none().then_some(value)
    }

    /// All lines of a header, in order.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|fault| panic!("no JSON ({fault}): {self:?}"))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The last segment of the problem's type; none when it is no problem+json.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if self.header("content-type") != Some("application/problem+json") {
            return None;
        }
        let body = self.json();
        body["type"].as_str()?.rsplit([':', '/']).next().map(str::to_owned)
    }

    /// `Retry-After`, in seconds.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")?.parse().ok()
    }

    /// Whether it says that it comes from a record.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// Whether it is `first` again: marked, and with the same status, location, content type and body.
    #[must_use]
    pub fn is_replay_of(&self, first: &Self) -> bool {
        let same = |name| self.header(name) == first.header(name);
        self.is_replayed()
            && !first.is_replayed()
            && self.status == first.status
            && self.body == first.body
            && same("location")
            && same("content-type")
    }

    /// Whether it tells a duplicate that the first request is being processed, and to come again within 1 to 3 seconds.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.status == StatusCode::CONFLICT
            && self.retry_after().is_some_and(|seconds| (1..=3).contains(&seconds))
            && self.problem().as_deref() == Some("request-in-flight")
    }
}
