//! What all fences can do.

use std::time::Duration;

use idempotency::{FenceTicket, HeldLease, Leases, Nonce, Resource, StoreError, StoreErrorKind, TokenSource};

use super::admit::Asked;
use super::dialect::FenceDatabase;
use super::opening::{Beside, Desk};
use super::transaction::{FencedTransaction, Opened};
use super::{FenceError, background, healing, keeping};

/// Fences in one database: [`PostgresFences`](super::PostgresFences), [`MySqlFences`](super::MySqlFences),
/// [`SqliteFences`](super::SqliteFences). A connection comes from the program's pool, for which an opening waits as
/// long as the pool does (sqlx's `acquire_timeout`, 30 s by default). Fences must be in the database whose rows they
/// guard. See the [module](super) for the rules.
///
/// An opening waits for whoever has the fence open, and tries again while conflicts, deadlocks and busy files are in
/// the way: for as long as a lock may take, and then says [`Busy`](idempotency::StoreErrorKind::Busy). Nothing of the
/// caller's has been run by then. What happens later is the caller's to try again.
///
/// # Panics
/// Everything here panics outside a tokio runtime whose time is enabled.
///
/// # Cancel safety
/// Everything here runs in a task of its own. Dropped before it was polled, it does nothing; later, it is carried out,
/// and a transaction that it opened is rolled back.
pub trait Fences: Send + Sync {
    /// The database, as sqlx names it.
    type Database: FenceDatabase;

    #[doc(hidden)]
    fn desk(&self) -> &Desk<Self::Database>;

    /// Opens a fence with a token that the database mints, larger than all before: whoever opens is the newest. The one
    /// to use when one database is guarded, with a lock before it or without: fence and data are lost and restored
    /// together, so a token is never behind its data.
    ///
    /// With a lock before it, look whether it is still held right before this. A holder that pauses between the two and
    /// wakes late is the newest then, and the one who took over is refused: safe, but unfair.
    ///
    /// # Errors
    /// [`FenceError::SourceMismatch`] or [`FenceError::Store`].
    fn open(
        &self,
        resource: &Resource,
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send {
        let (desk, asked) = (self.desk().clone(), Asked::minted(resource, Nonce::random()));
        background(desk.open(asked, Vec::new()))
    }

    /// The same for several resources, in one transaction. They are opened in the order of their names whatever order
    /// they come in, so that no two hold what the other one waits for.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Refused`](idempotency::StoreErrorKind::Refused) when there is no resource.
    fn open_all(
        &self,
        resources: &[Resource],
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send {
        let (desk, holder) = (self.desk().clone(), Nonce::random());
        let mut resources = resources.to_vec();
        resources.sort_unstable();
        resources.dedup();
        let mut asked: Vec<_> = resources.iter().map(|resource| Asked::minted(resource, holder)).collect();
        background(async move {
            if asked.is_empty() {
                return Err(StoreError::new(StoreErrorKind::Refused, "there is nothing to open").into());
            }
            desk.open(asked.remove(0), asked).await
        })
    }

    /// Opens a fence with a token from elsewhere, such as [`HeldLease::ticket`]. Which tokens are admitted is said by
    /// [`Admit`](super::Admit).
    ///
    /// # Errors
    /// [`FenceError`]; nothing was written.
    fn open_with(
        &self,
        resource: &Resource,
        ticket: &FenceTicket,
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send {
        let desk = self.desk().clone();
        let asked = Asked::brought(resource, ticket, desk.admit);
        background(desk.open(asked, Vec::new()))
    }

    /// Opens a fence with the token of a lease, and heals a lease store that lost its memory: when the fence has seen a
    /// larger token although the lease is still held, the lease is given a token above that one, once. Counted as
    /// `idempotency_tokens_regressed_total`.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with); [`FenceError::Superseded`] when the lease is not held any more,
    /// [`FenceError::LeaseLost`] when that is known beforehand.
    fn open_healing<L: Leases>(
        &self,
        resource: &Resource,
        lease: &HeldLease<L>,
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send
    where
        Self: Sized,
    {
        healing::open(self, resource, lease)
    }

    /// Begins another transaction of the same tenure. Refused when anybody else has opened the fence since, and when
    /// the database does not hold any more what the tenure had committed: what was read in the transactions before is
    /// void then.
    ///
    /// # Errors
    /// [`FenceError::Superseded`], [`FenceError::Rewound`], [`FenceError::Store`]; [`FenceError::AlreadyApplied`] for a
    /// ticket without a holder and under [`Admit::StrictlyNewer`](super::Admit::StrictlyNewer), where a token is good
    /// for one transaction.
    fn reopen(
        &self,
        opened: &Opened,
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send {
        background(self.desk().clone().again(opened.clone(), Beside::Nobody))
    }

    /// The same beside others of the same tenure: they run in parallel, and a new holder waits until all of them have
    /// ended. Does not write the fence. In SQLite, where one transaction writes at a time, it is one after the other.
    ///
    /// # Errors
    /// As [`reopen`](Self::reopen).
    fn verify(
        &self,
        opened: &Opened,
    ) -> impl Future<Output = Result<FencedTransaction<Self::Database>, FenceError>> + Send {
        background(self.desk().clone().again(opened.clone(), Beside::Others))
    }

    /// For operators: sets a fence to tokens of this source from now on. Tokens of another source are refused, of a
    /// clock also those from before now, and of any other source none: see that its old holders are gone. Also brings a
    /// fence back that was shut by a token of a wrong clock.
    ///
    /// # Errors
    /// [`FenceError::Store`].
    fn reset(&self, resource: &Resource, source: TokenSource) -> impl Future<Output = Result<(), FenceError>> + Send {
        let (desk, resource) = (self.desk().clone(), resource.clone());
        background(async move { keeping::reset(&desk, &resource, source).await })
    }

    /// Forgets fences whose last token is older than `older_than`, and not less than an hour, at most `limit` of them;
    /// says how many. From then on, where nothing is known of a resource, tokens so old are
    /// [refused](FenceError::BelowWatermark) and never taken for new. Only for tokens that say when they were minted:
    /// those of [the database](TokenSource::DATABASE) and of [leases](TokenSource::LEASES).
    ///
    /// `older_than` is to be longer than any tenure: a holder whose fence is forgotten is refused. Safe on many
    /// replicas at once. A transaction that opened a resource for the first time holds the purge up until it ends.
    ///
    /// # Errors
    /// [`FenceError::Store`].
    fn purge(&self, older_than: Duration, limit: usize) -> impl Future<Output = Result<usize, FenceError>> + Send {
        let desk = self.desk().clone();
        background(async move { keeping::purge(&desk, older_than, limit).await })
    }

    /// Forgets [markers](super::once()) that are older than this, at most `limit` of them; says how many. Their effects
    /// can happen again: take more than twice the tombstone window of the records.
    ///
    /// # Errors
    /// [`FenceError::Store`].
    fn forget_once(&self, older_than: Duration, limit: usize) -> impl Future<Output = Result<u64, FenceError>> + Send {
        let desk = self.desk().clone();
        background(async move { keeping::forget_once(&desk, older_than, limit).await })
    }
}
