//! What a retry must repeat: the fingerprint of a request.
//!
//! Each part is hashed under a label of its own, so that no two parts can stand for each other: a body's
//! raw bytes never equal another body's canonical form, and a service that turns one part off does not
//! change how the others are read.

mod json;
mod multipart;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use idempotency::{Fingerprint, FingerprintHasher};
use mime::Mime;

use crate::media_type::MediaType;

#[cfg(feature = "fuzzing")]
pub(crate) use self::json::canonical as canonical_json;

/// Which parts of a request make its fingerprint.
///
/// Default: method, path, query as sent, media type without its parameters, and the body in the form that
/// [`BodyMode::Canonical`] says. Credentials are never part of it: tokens rotate between a request and its
/// retry.
///
/// With a part left out, a request that differs in that part alone gets the *first* request's answer
/// instead of 422 `idempotency-key-reused`.
///
/// ```
/// use tower_idempotency::FingerprintRule;
///
/// // Two routes that do the same work under one business key.
/// let shared = FingerprintRule::default().without_route();
///
/// // Only what the caller says that matters.
/// let own = FingerprintRule::from_fn(|parts, body| {
///     idempotency::Fingerprint::of([parts.method.as_str().as_bytes(), body])
/// });
/// ```
#[derive(Clone)]
#[must_use]
pub struct FingerprintRule(Rule);

#[derive(Clone)]
enum Rule {
    Parts(Included),
    Own(Arc<OwnRule>),
}

type OwnRule = dyn Fn(&Parts, &Bytes) -> Fingerprint + Send + Sync;

#[derive(Clone, Copy, Debug)]
struct Included {
    /// Method and path.
    route: bool,
    query: bool,
    media_type: bool,
    body: Option<BodyMode>,
}

/// How a body goes into the fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BodyMode {
    /// By its meaning where the media type tells it, and by its bytes where not.
    ///
    /// - JSON (`application/json` and `+json`): member order, white space and the way strings are escaped do
    ///   not matter; array order does, and numbers count by their text, so `1` and `1.0` differ. JSON that is
    ///   invalid, nested more than 127 deep, or names a member twice in one object counts by its bytes.
    /// - `multipart/form-data`: the boundary, which every attempt draws anew, does not matter; all else
    ///   does. A malformed body counts by its bytes.
    #[default]
    Canonical,
    /// By its bytes. A client that serialises anew for a retry, or uploads a form, is then told 422.
    Raw,
}

impl FingerprintRule {
    /// A fingerprint of one's own. It decides alone: the setters of this type do not change it.
    ///
    /// A part that is forgotten here lets another request pass for a retry. Inside a nested axum router `parts.uri` is cut; the
    /// path that the client sent is in the extension `axum::extract::OriginalUri`.
    pub fn from_fn(rule: impl Fn(&Parts, &Bytes) -> Fingerprint + Send + Sync + 'static) -> Self {
        Self(Rule::Own(Arc::new(rule)))
    }

    /// How the body is hashed. Default: [`BodyMode::Canonical`].
    pub fn body(self, mode: BodyMode) -> Self {
        self.with(|included| included.body = Some(mode))
    }

    /// Leaves the body out. Default: it is in. Without it, a key that is reused for another payload is not
    /// noticed.
    pub fn without_body(self) -> Self {
        self.with(|included| included.body = None)
    }

    /// Leaves the query out. Default: it is in, exactly as sent. For clients that add a parameter of their
    /// own to every attempt; where the query says what to do, a key reused with another one is not noticed.
    pub fn without_query(self) -> Self {
        self.with(|included| included.query = false)
    }

    /// Leaves the media type out. Default: it is in, without its parameters. The same bytes under another
    /// media type are then a retry.
    pub fn without_media_type(self) -> Self {
        self.with(|included| included.media_type = false)
    }

    /// Leaves method, path and query out. Default: they are in. For keys that name a piece of business which
    /// more than one route does. With keys that clients choose, a key reused on another route gets that
    /// other route's answer.
    pub fn without_route(self) -> Self {
        self.with(|included| (included.route, included.query) = (false, false))
    }

    fn with(mut self, change: impl FnOnce(&mut Included)) -> Self {
        if let Rule::Parts(included) = &mut self.0 {
            change(included);
        }
        self
    }

    /// The fingerprint of a request whose client sent this path and query: a nested router hands on a URI
    /// that is cut.
    pub(crate) fn compute(&self, parts: &Parts, (path, query): (&str, Option<&str>), body: &Bytes) -> Fingerprint {
        let included = match &self.0 {
            Rule::Own(rule) => return rule(parts, body),
            Rule::Parts(included) => included,
        };
        let mut hasher = FingerprintHasher::new();
        if included.route {
            hasher.part(b"method").part(parts.method.as_str().as_bytes());
            hasher.part(b"path").part(path.as_bytes());
        }
        if let Some(query) = query.filter(|_| included.query) {
            hasher.part(b"query").part(query.as_bytes());
        }
        let content_type = parts.headers.get(CONTENT_TYPE).map(ContentType::read);
        if let Some(content_type) = content_type.as_ref().filter(|_| included.media_type) {
            hasher.part(b"media type").part(&content_type.media_type.lower_case());
        }
        if let Some(mode) = included.body {
            hash_body(&mut hasher, body, content_type.as_ref().filter(|_| mode == BodyMode::Canonical));
        }
        hasher.finish()
    }
}

impl Default for FingerprintRule {
    fn default() -> Self {
        let body = Some(BodyMode::default());
        Self(Rule::Parts(Included { route: true, query: true, media_type: true, body }))
    }
}

impl fmt::Debug for FingerprintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::Parts(included) => f.debug_tuple("FingerprintRule").field(included).finish(),
            Rule::Own(_) => f.write_str("FingerprintRule(own)"),
        }
    }
}

/// Adds the body, by its meaning where `content_type` tells it. The last thing to be hashed, because it may
/// be any number of parts.
fn hash_body(hasher: &mut FingerprintHasher, body: &Bytes, content_type: Option<&ContentType<'_>>) {
    if let Some(content_type) = content_type {
        if content_type.is_json() && json::canonical(body, |form| _ = hasher.part(b"json").part(form)).is_some() {
            return;
        }
        if let Some(boundary) = content_type.boundary()
            && let Some(form) = multipart::split(body, &boundary)
        {
            hasher.part(b"multipart").part(form.preamble).part(form.epilogue);
            for part in form.parts {
                hasher.part(part);
            }
            return;
        }
    }
    hasher.part(b"raw").part(body);
}

struct ContentType<'v> {
    media_type: MediaType<'v>,
    value: &'v HeaderValue,
}

impl<'v> ContentType<'v> {
    fn read(value: &'v HeaderValue) -> Self {
        Self { media_type: MediaType::read(value), value }
    }

    fn is_json(&self) -> bool {
        self.media_type.is("application/json") || self.media_type.ends_with("+json")
    }

    /// None when the header cannot be parsed.
    fn boundary(&self) -> Option<String> {
        let form = self.media_type.is("multipart/form-data");
        let mime = form.then(|| self.value.to_str().ok()?.parse::<Mime>().ok()).flatten()?;
        mime.get_param(mime::BOUNDARY).map(|boundary| boundary.as_str().to_owned())
    }
}
