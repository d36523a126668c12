//! What a store keeps of one resource.

use std::time::Duration;

use super::contract::LeaseEntry;
use crate::{DeadNonces, FencingToken, Nonce, TOKEN_HOLD, Timestamp};

/// Everything a store keeps of one resource, in whatever form. All decisions about it are in
/// [`lease_protocol`](crate::lease_protocol); a store only reads it and writes it back, atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The last token granted; none on the stub that an abandon leaves.
    pub token: Option<FencingToken>,
    /// The nonce of the last grant; none when it was given back.
    pub holder: Option<Nonce>,
    /// When the last lease ends or ended.
    pub lease_until: Timestamp,
    /// Nonces whose askings are refused.
    pub dead: DeadNonces,
}

impl LeaseRecord {
    /// Until the holder's lease ends; none when nobody has it. An end that is reached is over: a lease until 10 has ended
    /// at 10.
    #[must_use]
    pub fn lease_left(&self, now: Timestamp) -> Option<Duration> {
        (self.holder.is_some() && now < self.lease_until).then(|| self.lease_until.since(now))
    }

    /// Whether this holder is the last one and has not given it back.
    #[must_use]
    pub fn is_held_by(&self, token: FencingToken, nonce: Nonce) -> bool {
        self.token == Some(token) && self.holder == Some(nonce)
    }

    /// What an operator sees at `now`; none when it is over.
    #[must_use]
    pub fn entry(&self, now: Timestamp) -> Option<LeaseEntry> {
        self.entry_holding(now, TOKEN_HOLD)
    }

    /// The same with another hold of the token.
    #[must_use]
    pub fn entry_holding(&self, now: Timestamp, hold: Duration) -> Option<LeaseEntry> {
        let entry = LeaseEntry { token: self.token, lease_left: self.lease_left(now) };
        (now <= self.kept_until_holding(hold)).then_some(entry)
    }

    /// The row may be deleted strictly after this: its lease, its token's hold ([`TOKEN_HOLD`]) and its dead nonces.
    #[must_use]
    pub fn kept_until(&self) -> Timestamp {
        self.kept_until_holding(TOKEN_HOLD)
    }

    /// The same with another hold of the token, for a store whose clock cannot step back so far.
    #[must_use]
    pub fn kept_until_holding(&self, hold: Duration) -> Timestamp {
        let token = self.token.map_or(Timestamp::MIN, |token| time_of(token).after(hold));
        self.lease_until.max(token).max(self.dead.until())
    }

    /// When a sweep may delete it.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        self.kept_until().after(Duration::from_micros(1))
    }
}

/// The time that a token of leases says.
fn time_of(token: FencingToken) -> Timestamp {
    Timestamp::from_micros(i64::try_from(token.get()).unwrap_or(i64::MAX))
}
