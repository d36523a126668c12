//! Whose key a request's is.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use idempotency::ScopeId;

/// How a request's scope is told: the tenant and stable principal its key belongs to. Two scopes never share a record.
///
/// There is no default, because the wrong one lets a stranger take a key before its owner, or read its answer. A request whose
/// scope cannot be told is refused; there is no shared bucket for the anonymous.
#[derive(Clone)]
pub struct Scope(Source);

#[derive(Clone)]
enum Source {
    Global,
    Header(HeaderName),
    Function(Arc<ScopeFunction>),
}

type ScopeFunction = dyn Fn(&Parts) -> Option<ScopeId> + Send + Sync;

impl Scope {
    /// Everybody shares one key space. Right for a service with one client, or with keys nobody can guess.
    #[must_use]
    pub fn global() -> Self {
        Self(Source::Global)
    }

    /// The value of a header that an authenticating proxy sets. Missing, empty or repeated, the request is refused with 400.
    /// A header that clients can set themselves is no scope.
    #[must_use]
    pub fn header(name: HeaderName) -> Self {
        Self(Source::Header(name))
    }

    /// Told from the request's head, usually from an extension that authentication left there. `None` is an error of our own
    /// stack, answered with 500.
    pub fn from_fn(tell: impl Fn(&Parts) -> Option<ScopeId> + Send + Sync + 'static) -> Self {
        Self(Source::Function(Arc::new(tell)))
    }

    pub(crate) fn tell(&self, parts: &Parts) -> Result<ScopeId, ScopeMissing> {
        match &self.0 {
            Source::Global => Ok(ScopeId::global()),
            Source::Header(name) => {
                let mut values = parts.headers.get_all(name).iter();
                match (values.next(), values.next()) {
                    (Some(value), None) if !value.is_empty() => Ok(ScopeId::new([HeaderValue::as_bytes(value)])),
                    _ => Err(ScopeMissing::FromClient),
                }
            }
            Source::Function(tell) => tell(parts).ok_or(ScopeMissing::FromOurStack),
        }
    }

    pub(crate) fn describe(&self) -> &'static str {
        match self.0 {
            Source::Global => "global",
            Source::Header(_) => "header",
            Source::Function(_) => "principal",
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({})", self.describe())
    }
}

/// Who failed to tell the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeMissing {
    FromClient,
    FromOurStack,
}
