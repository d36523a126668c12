//! What leases are kept by: the trait, and the messages it is asked with.

use std::time::Duration;

use crate::watch::Watch;
use crate::{FencingToken, Lease, Nonce, Resource, Settled, StoreError};

/// Keeps leases: at most one holder per resource at a time, and a [`FencingToken`] that rises with every grant.
///
/// Each operation is atomic per resource and judged on the store's own clock at the time it is carried out, whether or not
/// anybody sweeps. What each answers in each state is in [`lease_protocol`](crate::lease_protocol), and
/// [`conformance::leases`](crate::conformance::leases) checks every row of it. Programs use it through a
/// [`Leaser`](crate::Leaser).
///
/// # Cancel safety
/// Dropping the future of any operation may or may not carry it out. All of them may be repeated: asking with one's own nonce is
/// granted again unchanged, a repeated release answers [`Settled::AlreadyApplied`]. Whoever gives up on an answer
/// abandons its nonce.
pub trait Leases: Send + Sync + 'static {
    /// Asks for a lease. The one operation that decides who has it.
    ///
    /// # Errors
    /// Kind [`Refused`](crate::StoreErrorKind::Refused) when [`Ask::above`] is further ahead of the store's clock than
    /// [`TOKEN_HOLD`](crate::TOKEN_HOLD): one bad clock must not push tokens to the year 2100.
    fn try_acquire(&self, ask: &Ask) -> impl Future<Output = Result<Acquired, StoreError>> + Send;

    /// Holds it for another `lease` from now, if it has not ended. [`Settled::Superseded`] is a loss; an error is not.
    fn renew(&self, holder: &LeaseHolder, lease: Lease) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Gives it back, also late while nobody took over. The nonce is dead for `dead_for`.
    fn release(
        &self,
        holder: &LeaseHolder,
        dead_for: Duration,
    ) -> impl Future<Output = Result<Settled, StoreError>> + Send;

    /// Gives up an asking whose answer never came: frees the resource if it is held under this nonce, and refuses late
    /// copies of the asking for `dead_for`.
    fn abandon(
        &self,
        resource: &Resource,
        nonce: Nonce,
        dead_for: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Hints that the resource may have been given back, for those who wait for it: as [`Store::watch`](crate::Store::watch).
    ///
    /// Default: there are none, and waiters ask every so often.
    fn watch(&self, _resource: &Resource) -> Watch {
        Watch::none()
    }

    /// What is known of a resource; none when it has been forgotten.
    fn inspect(&self, resource: &Resource) -> impl Future<Output = Result<Option<LeaseEntry>, StoreError>> + Send;

    /// Deletes what is over, at most `limit` resources, and says how many. Safe beside live leases and on many replicas
    /// at once.
    fn sweep(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;
}

/// A lease that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What is to be held.
    pub resource: Resource,
    /// Made before asking, so that an asking whose answer was lost is recognised when it comes again.
    pub nonce: Nonce,
    /// For how long.
    pub lease: Lease,
    /// A token that the granted one must be above. The holder itself is then given a new one, if its own is not.
    pub above: Option<FencingToken>,
}

/// The answer to an [`Ask`].
#[must_use = "a lease that was granted is held until it ends"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is the asker's. Again so when the asking is repeated while it runs.
    Granted(LeaseGrant),
    /// Somebody else has it.
    Held {
        /// Until their lease ends.
        lease_left: Duration,
    },
    /// This nonce asks for nothing any more: it was released or abandoned, or the lease that it was granted is over. Ask with
    /// a new one.
    Refused,
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Larger than that of every grant of this resource before it.
    pub token: FencingToken,
    /// Until it ends, counted from some moment after it was asked for.
    pub lease_left: Duration,
}

/// Who holds a lease: names it in every message after the grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// Of what.
    pub resource: Resource,
    /// The token it was granted.
    pub token: FencingToken,
    /// The nonce it was asked with.
    pub nonce: Nonce,
}

/// What an operator sees of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEntry {
    /// The last token granted, if any was.
    pub token: Option<FencingToken>,
    /// How long it is still held if it is not renewed; none when nobody has it.
    pub lease_left: Option<Duration>,
}
