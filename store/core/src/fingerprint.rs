//! What must be equal between a request and its retry.

use std::fmt;

use sha2::{Digest, Sha256};

/// A version byte and SHA-256 over the parts of a request that its retry must repeat.
///
/// ```
/// use idempotency::Fingerprint;
///
/// let first = Fingerprint::of([b"POST".as_slice(), b"/charge", b"{\"amount\":10}"]);
/// let other = Fingerprint::of([b"POST".as_slice(), b"/charge", b"{\"amount\":99}"]);
/// assert_ne!(first, other);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: u8,
    hash: [u8; 32],
}

impl Fingerprint {
    /// The version this release writes. A record with another one is refused, never taken for new.
    pub const VERSION: u8 = 1;

    /// The fingerprint of these parts, in this order, each length-prefixed.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        let mut hasher = FingerprintHasher::new();
        for part in parts {
            hasher.part(part.as_ref());
        }
        hasher.finish()
    }

    /// From the bytes that [`Fingerprint::to_bytes`] gave, of whatever version.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 33]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[1..]);
        Self { version: bytes[0], hash }
    }

    /// The version byte and the hash.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 33] {
        let mut bytes = [0; 33];
        bytes[0] = self.version;
        bytes[1..].copy_from_slice(&self.hash);
        bytes
    }

    /// The version byte.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.version
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{}, {:02x}{:02x}..)", self.version, self.hash[0], self.hash[1])
    }
}

/// Makes a [`Fingerprint`] part by part, without copying the parts together.
#[derive(Clone, Debug)]
pub struct FingerprintHasher(Sha256);

impl FingerprintHasher {
    /// With no parts yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Sha256::new_with_prefix(b"idempotency fingerprint v1\0"))
    }

    /// Adds one part, length-prefixed.
    pub fn part(&mut self, part: &[u8]) -> &mut Self {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
        self
    }

    /// The fingerprint of the parts so far.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint { version: Fingerprint::VERSION, hash: self.0.finalize().into() }
    }
}

impl Default for FingerprintHasher {
    fn default() -> Self {
        Self::new()
    }
}
