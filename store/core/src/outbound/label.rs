//! What a step is called.

use std::fmt;
use std::sync::Arc;

/// The name of a step in its handler, such as `charge` or `transfer`: 1 to 64 visible ASCII characters. Explicit, and unique in the
/// handler: the record and this name are the step's identity, over every run of the handler. Cheap to clone.
///
/// ```
/// use idempotency::outbound::StepLabel;
///
/// assert_eq!(StepLabel::parse("transfer")?.as_str(), "transfer");
/// assert!(StepLabel::parse("").is_err());
/// # Ok::<(), idempotency::outbound::InvalidStepLabel>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepLabel(Arc<str>);

impl StepLabel {
    /// The longest label, in bytes.
    pub const LONGEST: usize = 64;

    /// The label with this name.
    ///
    /// # Errors
    /// [`InvalidStepLabel`] when it is empty, above 64 bytes, or holds anything else than visible ASCII.
    pub fn parse(name: &str) -> Result<Self, InvalidStepLabel> {
        let fits = (1..=Self::LONGEST).contains(&name.len());
        if fits && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(name.into()))
        } else {
            Err(InvalidStepLabel)
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepLabel({:?})", &self.0)
    }
}

/// The text is no step label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a step label is 1 to 64 visible ASCII characters")]
pub struct InvalidStepLabel;
