//! The key that a provider is given, and what it is made of.

use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::label::StepLabel;
use crate::RecordId;
use crate::time::{InvalidDuration, check};

/// The key of a step: an encoding of SHA-256 over record id and label, each length-prefixed. It is the same on every call of the step, in
/// every process and after every restart, and no other step of any tenant has it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StepKey(String);

impl StepKey {
    pub(super) fn new(id: &RecordId, label: &StepLabel, encoding: KeyEncoding, length: usize) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"idempotency step key v1\0");
        for part in [id.as_bytes().as_slice(), label.as_str().as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut text = encoding.encode(&digest);
        text.truncate(length); // ASCII
        Self(text)
    }

    /// As it is sent.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StepKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepKey({})", self.0)
    }
}

/// How a step's key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyEncoding {
    /// 4 bits a character, `0-9a-f`: 64 characters at most.
    #[default]
    Hex,
    /// 6 bits a character, `A-Za-z0-9-_`, for short limits: 43 characters at most. Only for a provider that tells upper and lower case
    /// apart.
    Base64Url,
}

impl KeyEncoding {
    const fn bits(self) -> usize {
        match self {
            Self::Hex => 4,
            Self::Base64Url => 6,
        }
    }

    pub(super) const fn longest(self) -> usize {
        match self {
            Self::Hex => 64,
            Self::Base64Url => 43,
        }
    }

    fn encode(self, digest: &[u8; 32]) -> String {
        let alphabet: &[u8; 64] = match self {
            Self::Hex => b"0123456789abcdef                                                ",
            Self::Base64Url => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        };
        let bits = self.bits();
        let mut text = String::with_capacity(self.longest());
        let (mut held, mut count) = (0_usize, 0);
        for byte in digest {
            held = held << 8 | usize::from(*byte);
            count += 8;
            while count >= bits {
                count -= bits;
                text.push(char::from(alphabet[held >> count & ((1 << bits) - 1)]));
            }
            held &= (1 << count) - 1;
        }
        if count > 0 {
            text.push(char::from(alphabet[held << (bits - count)]));
        }
        text
    }
}

/// Where a provider wants the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// In this request header.
    Header(String),
    /// In this field of the request.
    Field(String),
}

/// What a provider counts its window from. The guard counts from the first call that may have been sent, whichever it is: none of
/// these is earlier, so its own window is never longer than the provider's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// From the first request with the key.
    FirstRequest,
    /// From the first request's completion.
    Completion,
    /// From the last use of the key.
    LastUse,
}

/// For how long a provider remembers a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    length: Duration,
    anchor: Anchor,
    margin: Duration,
}

impl Window {
    /// A window of this length, with a margin of a tenth of it, 5 minutes at most. Vendors shorten their windows, and most of them
    /// silently execute again afterwards: look it up, and look again.
    ///
    /// # Errors
    /// [`InvalidDuration`] below 1 ms or above 36500 days.
    pub fn new(length: Duration, anchor: Anchor) -> Result<Self, InvalidDuration> {
        check("the provider's window", length)?;
        Ok(Self { length, anchor, margin: (length / 10).min(Duration::from_secs(300)) })
    }

    /// How long before its end the window counts as over, beside the call's own timeout. A larger one costs retries; a smaller one trusts the clocks
    /// of provider and store more.
    #[must_use]
    pub const fn margin(self, margin: Duration) -> Self {
        Self { margin, ..self }
    }

    /// Its length.
    #[must_use]
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// What the provider counts it from.
    #[must_use]
    pub const fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// For how long after the first call another one, given up after `timeout`, still ends within the window.
    pub(super) const fn usable(&self, timeout: Duration) -> Duration {
        self.length.saturating_sub(self.margin).saturating_sub(timeout)
    }
}

/// That a provider takes a key and calls with the same one have one effect, while its window is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySupport {
    pub(super) place: KeyPlace,
    pub(super) window: Window,
    pub(super) encoding: KeyEncoding,
    pub(super) length: usize,
}

impl KeySupport {
    /// A provider that takes keys of at most `longest` characters.
    ///
    /// # Errors
    /// [`InvalidProvider::ShortKeys`] when that leaves less than 128 bits.
    pub fn new(
        place: KeyPlace,
        window: Window,
        encoding: KeyEncoding,
        longest: usize,
    ) -> Result<Self, InvalidProvider> {
        let length = longest.min(encoding.longest());
        let bits = length * encoding.bits();
        if bits < LEAST_BITS {
            return Err(InvalidProvider::ShortKeys { bits });
        }
        Ok(Self { place, window, encoding, length })
    }

    /// Where the provider wants the key.
    #[must_use]
    pub const fn place(&self) -> &KeyPlace {
        &self.place
    }

    /// For how long it remembers one.
    #[must_use]
    pub const fn window(&self) -> &Window {
        &self.window
    }
}

/// With fewer, two steps of a large service could meet in one key.
const LEAST_BITS: usize = 128;

/// Why a provider's settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidProvider {
    /// Its keys are too short to be unique.
    #[error("the provider's key limit leaves {bits} bits, and at least {LEAST_BITS} are needed")]
    ShortKeys {
        /// What is left.
        bits: usize,
    },
    /// Its window is over before a call is.
    #[error("the provider's window ({window:?}) does not outlast the call timeout and the margin")]
    ShortWindow {
        /// The window.
        window: Duration,
    },
    /// A duration is out of range.
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
}
