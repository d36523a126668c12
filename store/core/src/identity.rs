//! Who a record belongs to: scope, record id, nonce.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::Key;

/// The value of a scope: the tenant and stable principal a key belongs to. Two scopes never share a
/// record, whatever their keys are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ScopeId(Box<[u8]>);

impl ScopeId {
    /// The one scope of a service without tenants. Everybody who can send a request shares its keys.
    #[must_use]
    pub fn global() -> Self {
        Self::new::<&[u8]>([])
    }

    /// A scope made of parts, such as a tenant and a user. The parts are length-prefixed, so
    /// `["ab", "c"]` and `["a", "bc"]` are two scopes.
    pub fn new<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut bytes = Vec::new();
        for part in parts {
            push_prefixed(&mut bytes, part.as_ref());
        }
        Self(bytes.into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Says how long the scope is and nothing of what it says.
impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeId({} bytes)", self.0.len())
    }
}

fn push_prefixed(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
    bytes.extend_from_slice(part);
}

/// What a store sees of a scope and a key: 32 bytes, SHA-256 over both, length-prefixed and
/// domain-separated. Fixed size, no charset, no raw key at rest.
///
/// ```
/// use idempotency::{Key, RecordId, ScopeId};
///
/// let key = Key::parse("k1")?;
/// let id = RecordId::new(&ScopeId::new(["tenant-a"]), &key);
/// assert_ne!(id, RecordId::new(&ScopeId::new(["tenant-b"]), &key));
/// assert_eq!(id.to_string().parse::<RecordId>()?, id);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// The record of `key` in `scope`.
    #[must_use]
    pub fn new(scope: &ScopeId, key: &Key) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"idempotency record id v1\0");
        hash.update((scope.0.len() as u64).to_be_bytes());
        hash.update(&scope.0);
        hash.update(key.as_bytes());
        Self(hash.finalize().into())
    }

    /// From the bytes that [`RecordId::as_bytes`] gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Half of it, which tells as much of two ids: they are hashes themselves.
impl Hash for RecordId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0[..16]);
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}

impl FromStr for RecordId {
    type Err = InvalidRecordId;

    fn from_str(text: &str) -> Result<Self, InvalidRecordId> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidRecordId);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |b: u8| char::from(b).to_digit(16).ok_or(InvalidRecordId);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record id is 64 hexadecimal digits")]
pub struct InvalidRecordId;

/// 16 random bytes made by the claimer *before* it asks, so that a claim whose reply was lost is
/// recognised as its own when it comes again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce nobody else has.
    #[must_use]
    pub fn random() -> Self {
        Self(rand::random())
    }

    /// From the bytes that [`Nonce::as_bytes`] gave.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The first bytes only: whoever knows a nonce can settle its claim.
impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}
