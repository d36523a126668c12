//! What is done about an outcome that nobody knows.

use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::key::StepKey;
use super::label::StepLabel;
use crate::RecordId;

type Hook = dyn Fn(Inquiry) -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync;

/// What is done about a call whose outcome nobody knows. There is no default: the caller says which by its name.
///
/// | | what it promises |
/// |---|---|
/// | [`Hold`](Policy::Hold) | the step is called at most once while its record is kept, unless somebody resolves it |
/// | [`reconcile`](Policy::reconcile) | **not** at most once: a process paused for longer than deadline, quiet period and settle time can still send after the provider was asked |
/// | [`retry`](Policy::retry) | one effect, if the provider keeps its word on keys and its window; calls any number |
#[derive(Clone)]
pub enum Policy {
    /// Nothing more happens until somebody [resolves](super::Steps::resolve_step) it.
    Hold,
    /// The provider is asked, once its settle time is over: see [`Policy::reconcile`].
    Reconcile(Reconcile),
    /// It is called again under the same key: see [`Policy::retry`].
    Retry(Retry),
}

/// The hook of [`Policy::reconcile`].
#[derive(Clone)]
pub struct Reconcile(Arc<Hook>);

/// How often [`Policy::retry`] calls.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    pub(super) calls: NonZeroU32,
    pub(super) pause: Duration,
}

impl Policy {
    /// Asks `hook` what became of it, and calls again only when it says that it did not happen. It is asked by whoever comes back for the
    /// step, not before the provider's settle time is over, and has the provider's call timeout to answer; one that hangs or panics
    /// found out nothing.
    pub fn reconcile<H, F>(hook: H) -> Self
    where
        H: Fn(Inquiry) -> F + Send + Sync + 'static,
        F: Future<Output = Found> + Send + 'static,
    {
        Self::Reconcile(Reconcile(Arc::new(move |inquiry| Box::pin(hook(inquiry)))))
    }

    /// Calls again under the same key, at most `calls` times in one go, with growing pauses from `pause` on. Only with a provider that
    /// takes a key, and only while its window is open.
    #[must_use]
    pub const fn retry(calls: NonZeroU32, pause: Duration) -> Self {
        Self::Retry(Retry { calls, pause })
    }
}

impl Reconcile {
    pub(super) fn ask(&self, inquiry: Inquiry) -> Pin<Box<dyn Future<Output = Found> + Send>> {
        (self.0)(inquiry)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hold => "Hold",
            Self::Reconcile(_) => "Reconcile",
            Self::Retry(_) => "Retry",
        })
    }
}

impl fmt::Debug for Reconcile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconcile")
    }
}

/// What a reconcile hook is asked about.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// Whose step it is.
    pub id: RecordId,
    /// What it is called.
    pub label: StepLabel,
    /// The last call's number.
    pub call: u32,
    /// What the provider was given as a reference.
    pub reference: StepKey,
    /// How long its outcome has been unknown.
    pub age: Duration,
}

/// What a reconcile hook found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It happened, and this is its result.
    Happened(Bytes),
    /// The provider, asked after its settle time, knows nothing of it.
    DidNotHappen,
    /// It could not be found out.
    StillUnknown,
}
