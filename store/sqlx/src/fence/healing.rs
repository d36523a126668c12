//! Tokens that went backwards.

use idempotency::{FenceTicket, FencingToken, HeldLease, Leases, RaiseError, Resource};

use super::{FenceError, FencedTransaction, Fences};

pub(super) async fn open<F: Fences, L: Leases>(
    fences: &F,
    resource: &Resource,
    lease: &HeldLease<L>,
) -> Result<FencedTransaction<F::Database>, FenceError> {
    let ticket = lease.ticket()?;
    let current = match fences.open_with(resource, &ticket).await {
        // The same token by another holder is a source that minted it twice.
        Err(FenceError::Superseded { current }) => current,
        Err(FenceError::BelowWatermark { least }) => least,
        answer => return answer,
    };
    if !lease.still_held().await? {
        return Err(FenceError::Superseded { current });
    }
    let ticket = raise(resource, lease, &ticket, current).await?;
    fences.open_with(resource, &ticket).await
}

async fn raise<L: Leases>(
    resource: &Resource,
    lease: &HeldLease<L>,
    ticket: &FenceTicket,
    current: FencingToken,
) -> Result<FenceTicket, FenceError> {
    let stale = ticket.token;
    match lease.raise_above(current).await {
        Ok(token) => {
            tracing::warn!(%resource, %stale, %current, %token, "fencing tokens went backwards: the lease was given a newer one");
            metrics::counter!("idempotency_tokens_regressed_total").increment(1);
            Ok(FenceTicket { token, ..*ticket })
        }
        Err(RaiseError::Lost(_)) => Err(FenceError::Superseded { current }),
        Err(RaiseError::Store(error)) => Err(error.into()),
        Err(_) => Err(FenceError::Superseded { current }),
    }
}
