//! What is known of an external API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::CallEnd;
use super::key::{InvalidProvider, KeyEncoding, KeySupport, StepKey};
use super::label::StepLabel;
use crate::RecordId;
use crate::time::check;

type Classify = dyn Fn(u16, &Bytes) -> Option<CallEnd> + Send + Sync;

/// What is known of an external API: how long a call may take, how long its effect may take to show, whether it takes a key, and
/// what its refusals look like. Cheap to clone.
#[derive(Clone)]
#[must_use]
pub struct Provider {
    name: Arc<str>,
    pub(super) call_timeout: Duration,
    pub(super) quiet_period: Duration,
    pub(super) settle_time: Duration,
    pub(super) lease_margin: Duration,
    pub(super) keys: Option<KeySupport>,
    refusals: Arc<[u16]>,
    classify: Option<Arc<Classify>>,
}

impl Provider {
    /// A provider whose calls are given up after `call_timeout`. Its name is for logs.
    ///
    /// # Errors
    /// [`InvalidProvider::Duration`] below 1 ms or above 36500 days.
    pub fn new(name: &str, call_timeout: Duration) -> Result<Self, InvalidProvider> {
        Ok(Self {
            name: name.into(),
            call_timeout: check("the call timeout", call_timeout)?,
            quiet_period: Duration::from_secs(15),
            settle_time: Duration::from_secs(60),
            lease_margin: Duration::from_secs(1),
            keys: None,
            refusals: Arc::new([]),
            classify: None,
        })
    }

    /// How long after a call's deadline nobody else calls, because a process that stood still may send late. Default 15 s. Shorter: a
    /// crash is overcome sooner. No length makes it certain: a process can be paused for longer between its last look at the clock and
    /// the first byte.
    ///
    /// # Errors
    /// [`InvalidProvider::Duration`] below 1 ms or above 36500 days.
    pub fn quiet_period(self, quiet_period: Duration) -> Result<Self, InvalidProvider> {
        Ok(Self { quiet_period: check("the quiet period", quiet_period)?, ..self })
    }

    /// How long after a call the provider may take until it can be asked whether it happened. Default 60 s. Too short, and a reconcile
    /// hook is told "no" of what is still on its way.
    ///
    /// # Errors
    /// [`InvalidProvider::Duration`] below 1 ms or above 36500 days.
    pub fn settle_time(self, settle_time: Duration) -> Result<Self, InvalidProvider> {
        Ok(Self { settle_time: check("the settle time", settle_time)?, ..self })
    }

    /// How much longer than the call timeout the attempt's lease must still last when a call is begun. Default 1 s. Renewed every third,
    /// a lease has two thirds left at worst: call timeout and margin must fit in there.
    pub const fn lease_margin(mut self, lease_margin: Duration) -> Self {
        self.lease_margin = lease_margin;
        self
    }

    /// That it takes a key. Without it nothing is ever sent twice by policy `Retry`.
    ///
    /// # Errors
    /// [`InvalidProvider::ShortWindow`] when no second call could end within the window.
    pub fn takes_key(self, keys: KeySupport) -> Result<Self, InvalidProvider> {
        if keys.window.usable(self.call_timeout).is_zero() {
            return Err(InvalidProvider::ShortWindow { window: keys.window.length() });
        }
        Ok(Self { keys: Some(keys), ..self })
    }

    /// The statuses by which it documents that it refused and did nothing. Default: none. A status that is not documented as such
    /// proves nothing.
    pub fn refuses(self, statuses: impl IntoIterator<Item = u16>) -> Self {
        Self { refusals: statuses.into_iter().collect(), ..self }
    }

    /// Its own classification of answers by status and body; what it leaves open is classified as usual. Default: none. Whatever it
    /// calls not done or refused wrongly may happen twice.
    pub fn classify(self, classify: impl Fn(u16, &Bytes) -> Option<CallEnd> + Send + Sync + 'static) -> Self {
        Self { classify: Some(Arc::new(classify)), ..self }
    }

    /// How a call ended that was answered with this status and body, whose result is `result`: done for 200 to 299, refused for what it
    /// documents, and everything else unknown, 5xx as well as an undocumented 4xx.
    #[must_use]
    pub fn ending(&self, status: u16, body: &Bytes, result: Bytes) -> CallEnd {
        if let Some(end) = self.classify.as_ref().and_then(|classify| classify(status, body)) {
            return end;
        }
        match status {
            200..=299 => CallEnd::Done(result),
            status if self.refusals.contains(&status) => CallEnd::Refused(result),
            status => CallEnd::Unknown(format!("answered with status {status}")),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it takes keys, if it does.
    #[must_use]
    pub const fn keys(&self) -> Option<&KeySupport> {
        self.keys.as_ref()
    }

    /// When a call is given up.
    #[must_use]
    pub const fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// The key of a step: cut to what the provider takes, whole if it takes none.
    #[must_use]
    pub fn key(&self, id: &RecordId, label: &StepLabel) -> StepKey {
        let (encoding, length) = self
            .keys
            .as_ref()
            .map_or((KeyEncoding::Hex, KeyEncoding::Hex.longest()), |keys| (keys.encoding, keys.length));
        StepKey::new(id, label, encoding, length)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.name)
            .field("call_timeout", &self.call_timeout)
            .finish_non_exhaustive()
    }
}
