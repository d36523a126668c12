//! What a lease or a fence is about.

use std::fmt;
use std::sync::Arc;

/// The name of what is guarded by a lease or a fence, such as `account/7`: 1 to 255 bytes without control characters,
/// compared byte by byte. Cheap to clone.
///
/// Unlike an idempotency key, it is stored and logged as it is: it names a thing of the service's own.
///
/// ```
/// use idempotency::Resource;
///
/// let account = Resource::parse("account/7")?;
/// assert_ne!(account, Resource::parse("Account/7")?);
/// # Ok::<(), idempotency::InvalidResource>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Arc<str>);

impl Resource {
    /// The longest name, in bytes.
    pub const LONGEST: usize = 255;

    /// The resource with this name.
    ///
    /// # Errors
    /// [`InvalidResource`] for an empty name, one above 255 bytes, and one with a control character.
    pub fn parse(name: &str) -> Result<Self, InvalidResource> {
        match name {
            "" => Err(InvalidResource::Empty),
            _ if name.len() > Self::LONGEST => Err(InvalidResource::TooLong { bytes: name.len() }),
            _ if name.chars().any(char::is_control) => Err(InvalidResource::ControlCharacter),
            _ => Ok(Self(name.into())),
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its name as stores keep it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({:?})", &self.0)
    }
}

/// Why a name is no [`Resource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResource {
    /// It is empty.
    #[error("a resource has a name")]
    Empty,
    /// It is above 255 bytes.
    #[error("the name of a resource has at most 255 bytes, not {bytes}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It holds a control character.
    #[error("the name of a resource has no control characters")]
    ControlCharacter,
}
