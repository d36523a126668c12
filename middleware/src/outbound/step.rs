//! Which step a request is.

use http::request::Parts;
use http::{HeaderMap, HeaderName};
use idempotency::outbound::{InvalidStepLabel, Step, StepLabel};
use idempotency::{Attempt, FenceTicket, FingerprintHasher, TokenSource};

/// In the extensions of a request to an external API: which step of which attempt it is.
///
/// ```
/// use http::Request;
/// use tower_idempotency::Attempt;
/// use tower_idempotency::outbound::GuardedStep;
///
/// fn charge(attempt: &Attempt) -> Result<Request<String>, Box<dyn std::error::Error>> {
///     let request = Request::post("https://provider.example/charges");
///     Ok(request.extension(GuardedStep::new(attempt, "charge")?).body("amount=10".to_owned())?)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct GuardedStep {
    attempt: Attempt,
    label: StepLabel,
}

impl GuardedStep {
    /// The step by this name, unique in the handler.
    ///
    /// # Errors
    /// [`InvalidStepLabel`] when the name is no label.
    pub fn new(attempt: &Attempt, label: &str) -> Result<Self, InvalidStepLabel> {
        Ok(Self { attempt: attempt.clone(), label: StepLabel::parse(label)? })
    }

    /// Whose step it is.
    #[must_use]
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Its name.
    #[must_use]
    pub const fn label(&self) -> &StepLabel {
        &self.label
    }

    /// The attempt's token, for a service that has a fence of its own: put it into the request's extensions, and a
    /// [`ForwardFencingToken`](crate::ForwardFencingToken) inside. An attempt that was superseded is then refused there, however late it wakes. Say
    /// a source of the program's own: the tokens of leases and of records say nothing about each other.
    #[must_use]
    pub fn ticket(&self, source: TokenSource) -> FenceTicket {
        let holder = self.attempt.holder();
        // With a holder, every step of the attempt may bring the same token.
        FenceTicket { token: holder.token, holder: Some(holder.nonce), source }
    }

    /// The step, and what its every call must repeat: method, URI, the headers that count, and the body byte for byte.
    pub(super) fn identify(
        &self,
        parts: &Parts,
        body: &[u8],
        headers: &[HeaderName],
    ) -> Result<Step, InvalidStepLabel> {
        let mut hasher = FingerprintHasher::new();
        hasher.part(parts.method.as_str().as_bytes());
        hasher.part(parts.uri.to_string().as_bytes());
        for name in headers {
            hash_header(&mut hasher, &parts.headers, name);
        }
        hasher.part(body);
        Step::new(self.label.as_str(), hasher.finish())
    }
}

/// A line that is missing is not an empty one, and two lines are not one.
fn hash_header(hasher: &mut FingerprintHasher, headers: &HeaderMap, name: &HeaderName) {
    let lines = headers.get_all(name);
    hasher.part(name.as_str().as_bytes());
    hasher.part(&(lines.iter().count() as u64).to_be_bytes());
    for line in lines {
        hasher.part(line.as_bytes());
    }
}
