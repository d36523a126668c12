//! The names of keys.

use idempotency::{RecordId, Resource};
use sha2::{Digest, Sha256};

/// What all our keys begin with. Everything of one record, and of one resource, has a hash tag of ours in its name, so that
/// it is in one slot of a cluster whatever a user's key or resource looks like: both are hashed.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// Which kind of key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Record,
    Lease,
}

impl Kind {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Record => "}:r",
            Self::Lease => "}:l",
        }
    }
}

impl Keys {
    /// None when the prefix holds a brace: that would be the hash tag.
    pub(crate) fn new(prefix: &str) -> Option<Self> {
        (!prefix.contains(['{', '}'])).then(|| Self { prefix: prefix.to_owned() })
    }

    pub(crate) fn record(&self, id: &RecordId) -> [String; 1] {
        [self.name(Kind::Record, id)]
    }

    pub(crate) fn lease(&self, resource: &Resource) -> [String; 1] {
        [self.name(Kind::Lease, &RecordId::from_bytes(Sha256::digest(resource.as_bytes()).into()))]
    }

    /// The glob that matches all keys of a kind.
    pub(crate) fn pattern(&self, kind: Kind) -> String {
        let mut pattern = String::with_capacity(self.prefix.len() + 8);
        for character in self.prefix.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '^' | '\\') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push_str("{*");
        pattern.push_str(kind.suffix());
        pattern
    }

    /// What a key of this kind is of; none when the name is not one of ours.
    pub(crate) fn id(&self, kind: Kind, key: &[u8]) -> Option<RecordId> {
        let key = str::from_utf8(key).ok()?;
        key.strip_prefix(&self.prefix)?.strip_prefix('{')?.strip_suffix(kind.suffix())?.parse().ok()
    }

    /// The key with this id.
    pub(crate) fn of(&self, kind: Kind, id: &RecordId) -> [String; 1] {
        [self.name(kind, id)]
    }

    fn name(&self, kind: Kind, id: &RecordId) -> String {
        // For every operation: digit by digit through a formatter would cost more than to encode the rest of the command.
        let digit = |digit: u8| char::from(b"0123456789abcdef"[usize::from(digit)]);
        let mut name = String::with_capacity(self.prefix.len() + 70);
        name.push_str(&self.prefix);
        name.push('{');
        name.extend(id.as_bytes().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
        name.push_str(kind.suffix());
        name
    }
}
