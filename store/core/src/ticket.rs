//! What a fence is asked to admit.

use std::fmt;

use crate::{FencingToken, Nonce};

/// A fencing token, who holds it, and where it was minted: what a lease yields and a fence admits.
///
/// Two holders can be given one token by a source that lost its memory (a failover, a restored backup). A fence that knows
/// the holder refuses the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceTicket {
    /// The token.
    pub token: FencingToken,
    /// Who holds it. Without a holder the token is good for one transaction: a second use cannot be told from a second user.
    pub holder: Option<Nonce>,
    /// Where it was minted.
    pub source: TokenSource,
}

/// Where tokens are minted. The tokens of two sources say nothing about each other, so a fence that has seen one source
/// refuses every other one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenSource(u16);

impl TokenSource {
    /// The database that holds the fence. The default where one database is guarded: fence and data are lost and restored
    /// together, so a token is never behind its data.
    pub const DATABASE: Self = Self(0);
    /// Leases: microseconds of the lease store's clock.
    pub const LEASES: Self = Self(1);

    /// A source of the program's own, such as etcd revisions: 2 to 65535, always the same for one source. 0 is
    /// [`DATABASE`](Self::DATABASE), 1 is [`LEASES`](Self::LEASES).
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether its tokens are microseconds of a clock, and so say how old they are.
    #[must_use]
    pub const fn is_time(self) -> bool {
        self.0 <= Self::LEASES.0
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DATABASE => f.write_str("TokenSource::DATABASE"),
            Self::LEASES => f.write_str("TokenSource::LEASES"),
            Self(number) => write!(f, "TokenSource({number})"),
        }
    }
}
