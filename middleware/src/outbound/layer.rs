//! The layer and its settings.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, Method};
use idempotency::outbound::{Guard, LONGEST_RESULT, StepKey};
use tower_layer::Layer;

use super::service::Outbound;
use crate::body::BoxError;

/// Puts a [`Guard`] around an HTTP client: see [`outbound`](super).
#[must_use = "a layer does nothing before it is put around a client"]
pub struct OutboundLayer<St> {
    guard: Guard<St>,
    rules: Rules,
}

/// What becomes of a request whose extensions hold no [`GuardedStep`](super::GuardedStep).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unguarded {
    /// It is refused; nothing is sent.
    #[default]
    Refuse,
    /// `GET`, `HEAD`, `OPTIONS` and `TRACE` are passed on, for a reconcile hook that looks something up. Others are refused.
    PassSafeMethods,
    /// It is passed on, whatever it is: **one forgotten extension, and a call is made twice.**
    PassAll,
}

/// The settings, as the service has them.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) headers: Arc<[HeaderName]>,
    pub(super) max_request: usize,
    pub(super) max_response: usize,
    pub(super) unguarded: Unguarded,
    not_sent: Arc<NotSent>,
    pub(super) key_field: Option<Arc<KeyField>>,
}

type NotSent = dyn Fn(&(dyn Error + 'static)) -> bool + Send + Sync;
pub(super) type KeyField = dyn Fn(&str, &StepKey, Bytes) -> Bytes + Send + Sync;

impl<St> OutboundLayer<St> {
    /// A layer that calls one provider, as `guard` says.
    pub fn new(guard: Guard<St>) -> Self {
        let rules = Rules {
            headers: Arc::new([CONTENT_TYPE]),
            max_request: 2 * MIB,
            max_response: MIB,
            unguarded: Unguarded::default(),
            not_sent: Arc::new(|_| false),
            key_field: None,
        };
        Self { guard, rules }
    }

    /// Which of the client's errors say **for certain** that nothing of the request was sent: the name was not found, the connection was
    /// refused, TLS failed. Default: none, every error is an unknown outcome. Whatever is wrongly among them may happen twice.
    ///
    /// The error is looked at as the client gives it, not what it may have inside: a layer that tries again by itself gives the error of its *last*
    /// try. So leave this alone where one is inside.
    ///
    /// ```
    /// # use tower_idempotency::outbound::OutboundLayer;
    /// # fn with<St>(layer: OutboundLayer<St>) -> OutboundLayer<St> {
    /// layer.not_sent(|error: &hyper_util::client::legacy::Error| error.is_connect())
    /// # }
    /// ```
    pub fn not_sent<E: Error + 'static>(mut self, is_certain: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.rules.not_sent = Arc::new(move |error| error.downcast_ref::<E>().is_some_and(&is_certain));
        self
    }

    /// How the step's key comes into the body, for a provider that wants it in [a field](idempotency::outbound::KeyPlace::Field): from the
    /// field's name, the key and the body to the body that is sent. It must make the same of the same. Default: none, and a request
    /// that needs it is refused.
    pub fn key_field(mut self, put: impl Fn(&str, &StepKey, Bytes) -> Bytes + Send + Sync + 'static) -> Self {
        self.rules.key_field = Some(Arc::new(put));
        self
    }

    /// The headers that every call of a step must repeat, besides method, URI and body. Default `Content-Type`. Not those that differ from try
    /// to try, such as `Date`, or `Authorization` with a token that is renewed: the step would be refused as changed.
    pub fn same_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.rules.headers = names.into_iter().collect();
        self
    }

    /// What becomes of a request that names no step. Default [`Unguarded::Refuse`].
    pub fn unguarded(mut self, unguarded: Unguarded) -> Self {
        self.rules.unguarded = unguarded;
        self
    }

    /// The longest request body in bytes. Default 2 MiB. It is read before anything is sent.
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.rules.max_request = bytes;
        self
    }

    /// The longest response body in bytes that is read; at least [`LONGEST_RESULT`]. Default 1 MiB. Of a longer one it is known that the step
    /// was decided, and not how. What is longer than [`LONGEST_RESULT`] is given to the first caller and cannot be replayed.
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.rules.max_response = bytes.max(LONGEST_RESULT);
        self
    }
}

impl Rules {
    pub(super) fn is_not_sent(&self, error: &BoxError) -> bool {
        (self.not_sent)(&**error)
    }

    pub(super) fn passes(&self, method: &Method) -> bool {
        match self.unguarded {
            Unguarded::Refuse => false,
            Unguarded::PassSafeMethods => method.is_safe(),
            Unguarded::PassAll => true,
        }
    }
}

impl<S, St> Layer<S> for OutboundLayer<St> {
    type Service = Outbound<S, St>;

    fn layer(&self, inner: S) -> Self::Service {
        Outbound::new(inner, self.guard.clone(), self.rules.clone())
    }
}

impl<St> Clone for OutboundLayer<St> {
    fn clone(&self) -> Self {
        Self { guard: self.guard.clone(), rules: self.rules.clone() }
    }
}

impl<St> fmt::Debug for OutboundLayer<St> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundLayer").field("guard", &self.guard).finish_non_exhaustive()
    }
}

const MIB: usize = 1024 * 1024;
