//! Who is admitted.

use idempotency::time::micros;
use idempotency::{FenceTicket, FencingToken, Nonce, Resource, TOKEN_HOLD, Timestamp, TokenSource};

use super::FenceError;

/// Which tokens a fence admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admit {
    /// Newer than the last one, or the same again by the same holder: any number of transactions in one tenure. The
    /// default. A ticket without a holder is good for one transaction whatever is said here, since nobody knows who
    /// brings it again.
    #[default]
    SameOrNewer,
    /// Newer than the last one: one transaction per token. A repeat is told that it has been
    /// [applied already](FenceError::AlreadyApplied).
    StrictlyNewer,
}

/// What a fence is asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) resource: Resource,
    pub(crate) source: TokenSource,
    /// The token that was brought; none where the database mints one.
    pub(crate) token: Option<FencingToken>,
    pub(crate) holder: [u8; 16],
    /// Whether the same token may come again, by the same holder.
    pub(crate) again: bool,
}

impl Asked {
    /// For a token that the database mints.
    pub(crate) fn minted(resource: &Resource, holder: Nonce) -> Self {
        let (source, holder) = (TokenSource::DATABASE, *holder.as_bytes());
        Self { resource: resource.clone(), source, token: None, holder, again: true }
    }

    pub(crate) fn brought(resource: &Resource, ticket: &FenceTicket, admit: Admit) -> Self {
        let holder = ticket.holder.map_or(NOBODY, |nonce| *nonce.as_bytes());
        Self {
            resource: resource.clone(),
            source: ticket.source,
            token: Some(ticket.token),
            holder,
            again: admit == Admit::SameOrNewer && holder != NOBODY,
        }
    }

    /// The ticket that was admitted with this token.
    pub(crate) fn ticket(&self, token: FencingToken) -> FenceTicket {
        let holder = (self.holder != NOBODY).then(|| Nonce::from_bytes(self.holder));
        FenceTicket { token, holder, source: self.source }
    }

    /// The token to write to a fence that stands so.
    pub(crate) fn judge(&self, now: Timestamp, stored: &Stored) -> Result<FencingToken, FenceError> {
        if stored.source != self.source {
            return Err(FenceError::SourceMismatch { stored: stored.source });
        }
        let Some(mine) = self.token else {
            return Ok(FencingToken::after(stored.token, now));
        };
        match stored.token {
            Some(current) if current > mine => Err(FenceError::Superseded { current }),
            Some(current) if current == mine && stored.holder != self.holder => Err(FenceError::Superseded { current }),
            Some(current) if current == mine && !self.again => Err(FenceError::AlreadyApplied),
            Some(current) if current == mine => Ok(mine),
            _ => not_too_far(mine, self.source, now),
        }
    }

    /// The token to write where there is no fence yet, or none any more: tokens below `least` may be gone.
    pub(crate) fn judge_missing(
        &self,
        now: Timestamp,
        least: Option<FencingToken>,
    ) -> Result<FencingToken, FenceError> {
        match (self.token, least) {
            (None, least) => Ok(least.into_iter().fold(FencingToken::after(None, now), FencingToken::max)),
            (Some(mine), Some(least)) if mine < least => Err(FenceError::BelowWatermark { least }),
            (Some(mine), _) => not_too_far(mine, self.source, now),
        }
    }
}

pub(crate) fn not_too_far(
    token: FencingToken,
    source: TokenSource,
    now: Timestamp,
) -> Result<FencingToken, FenceError> {
    let furthest = u64::try_from(now.micros().saturating_add(micros(TOKEN_HOLD))).unwrap_or(0);
    if source.is_time() && token.get() > furthest { Err(FenceError::FromTheFuture) } else { Ok(token) }
}

/// How a fence stands.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) source: TokenSource,
    /// None where an operator has reset it and nobody came since.
    pub(crate) token: Option<FencingToken>,
    pub(crate) holder: [u8; 16],
    /// When it was opened last. Rises with every opening, also while the clock does not.
    pub(crate) opened_at: Timestamp,
}

/// What stands for a holder that is not known.
pub(crate) const NOBODY: [u8; 16] = [0; 16];
