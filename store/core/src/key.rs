//! The idempotency key, parsed once at the edge and always valid inside.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What the client calls its operation. Cheap to clone.
///
/// ```
/// use idempotency::Key;
///
/// let key = Key::parse("order-42")?;
/// assert_eq!(key.as_str(), "order-42");
/// assert_eq!(key.as_bytes(), b"order-42");
/// assert!(Key::parse("").is_err());
/// // Two keys that differ in case or in a trailing space are two keys.
/// assert_ne!(Key::parse("a")?, Key::parse("A")?);
/// assert_ne!(Key::parse("a")?, Key::parse("a ")?);
/// # Ok::<(), idempotency::InvalidKey>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Text);

/// One text has one form: it is `Short` if it is short enough.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    /// With its length. Long enough for a UUID, and costs no allocation.
    Short(u8, [u8; SHORT]),
    Long(Arc<str>),
}

const SHORT: usize = 38;

impl Key {
    /// Parses a key by the default [`KeyRules`].
    ///
    /// # Errors
    /// [`InvalidKey`] names the rule that was broken.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        KeyRules::default().parse(text)
    }

    /// The key's text. Secret enough to keep out of logs: stores see only its hash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only ASCII is let in.
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The same as bytes, which costs nothing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short(length, bytes) => &bytes[..usize::from(*length)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    fn of(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        let Some(start) = bytes.get_mut(..text.len()) else { return Self(Text::Long(text.into())) };
        start.copy_from_slice(text.as_bytes());
        Self(Text::Short(text.len() as u8, bytes))
    }
}

/// Says how long the key is and nothing of what it says, so that a log holds no raw keys.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.as_bytes().len())
    }
}

/// What a key may look like. Default: 1 to 255 characters of visible ASCII and spaces, not all spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRules {
    length: RangeInclusive<usize>,
}

impl KeyRules {
    /// Rules with another allowed length, in bytes. A lower end of 0 is taken as 1.
    #[must_use]
    pub fn length(self, length: RangeInclusive<usize>) -> Self {
        Self { length: (*length.start()).max(1)..=*length.end() }
    }

    /// The allowed length, in bytes.
    #[must_use]
    pub fn allowed_length(&self) -> RangeInclusive<usize> {
        self.length.clone()
    }

    /// Parses a key by these rules.
    ///
    /// # Errors
    /// [`InvalidKey`] names the rule that was broken.
    pub fn parse(&self, text: &str) -> Result<Key, InvalidKey> {
        if text.bytes().all(|b| b == b' ') {
            return Err(InvalidKey::Empty);
        }
        if text.len() < *self.length.start() {
            return Err(InvalidKey::TooShort { least: *self.length.start() });
        }
        if text.len() > *self.length.end() {
            return Err(InvalidKey::TooLong { most: *self.length.end() });
        }
        if !text.bytes().all(|b| matches!(b, 0x20..=0x7E)) {
            return Err(InvalidKey::Charset);
        }
        Ok(Key::of(text))
    }
}

impl Default for KeyRules {
    fn default() -> Self {
        Self { length: 1..=255 }
    }
}

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKey {
    /// Nothing, or nothing but spaces.
    #[error("the key is empty")]
    Empty,
    /// Below the least allowed length.
    #[error("the key is shorter than {least} characters")]
    TooShort {
        /// The least allowed length.
        least: usize,
    },
    /// Above the greatest allowed length.
    #[error("the key is longer than {most} characters")]
    TooLong {
        /// The greatest allowed length.
        most: usize,
    },
    /// A byte outside visible ASCII and space.
    #[error("the key holds a character that is not visible ASCII")]
    Charset,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_key_says_what_was_parsed_however_long_it_is() {
        let text = "k".repeat(255);
        let keys: HashSet<Key> = (1..=255).map(|length| Key::parse(&text[..length]).unwrap()).collect();
        assert_eq!(keys.len(), 255);
        for length in [1, SHORT - 1, SHORT, SHORT + 1, 255] {
            let key = Key::parse(&text[..length]).unwrap();
            assert_eq!(key.as_str(), &text[..length]);
            assert!(keys.contains(&key));
        }
    }
}
