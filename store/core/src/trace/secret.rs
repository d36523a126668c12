//! What keys and scopes are hashed with.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The secret of a trace. Keys are often short or counted up, so a plain hash of one is found by trying all of them.
#[derive(Clone)]
pub struct TraceSecret(Hmac<Sha256>);

/// A keyed hash, short enough for a line and long enough that no two things share one.
pub(super) type Hidden = [u8; 16];

impl TraceSecret {
    /// A secret that nobody knows.
    #[must_use]
    pub fn random() -> Self {
        Self::from_bytes(&rand::random::<[u8; 32]>())
    }

    /// This one: 32 random bytes, the same wherever traces are to be put together, and kept as a password is.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        // A shorter key is filled up with zeros to a block (RFC 2104 section 2).
        let mut block = [0; 64];
        block[..32].copy_from_slice(bytes);
        Self(Hmac::new(&block.into()))
    }

    /// `what` under this secret. The name keeps a key and a scope with the same bytes apart.
    pub(super) fn hide(&self, name: &str, what: &[u8]) -> Hidden {
        let mut hash = self.0.clone();
        hash.update(name.as_bytes());
        hash.update(&[0]);
        hash.update(what);
        let whole: [u8; 32] = hash.finalize().into_bytes().into();
        let mut hidden = Hidden::default();
        hidden.copy_from_slice(&whole[..16]);
        hidden
    }
}

/// Says nothing of it.
impl fmt::Debug for TraceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSecret")
    }
}
