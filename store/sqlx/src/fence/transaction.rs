//! The transaction that an opened fence gives.

use std::fmt;
use std::ops::{Deref, DerefMut};

use idempotency::{FenceTicket, RecordId, Resource, Timestamp};
use sqlx::Transaction;

use super::dialect::FenceDatabase;
use super::opening::Desk;
use super::{FenceError, background};
use crate::row::Values;

/// A transaction whose first statement opened a fence, or several. Only an opening makes one, so a function that writes
/// what a fence guards asks for it: `async fn charge(transaction: &mut FencedTransaction<Postgres>, …)`.
///
/// It stands for its connection: statements run on `&mut *transaction`. Dropped, it is rolled back, and the fence with
/// it. A statement of yours that failed is a reason to drop it: MySQL rolls back only the statement when a lock did not
/// come in time, and would commit the rest.
#[must_use = "dropped, it is rolled back"]
pub struct FencedTransaction<D: FenceDatabase> {
    transaction: Transaction<'static, D>,
    first: Tenure,
    others: Vec<Tenure>,
    desk: Desk<D>,
    poisoned: bool,
}

impl<D: FenceDatabase> FencedTransaction<D> {
    pub(super) fn new(transaction: Transaction<'static, D>, first: Tenure, others: Vec<Tenure>, desk: Desk<D>) -> Self {
        Self { transaction, first, others, desk, poisoned: false }
    }

    /// The ticket that the fence was opened with; of several, that of the first resource in their order. The database
    /// counts it as admitted once this is committed.
    #[must_use]
    pub fn ticket(&self) -> FenceTicket {
        self.first.ticket
    }

    /// What was opened, in the order in which it was.
    pub fn fences(&self) -> impl Iterator<Item = (&Resource, &FenceTicket)> {
        tenures(&self.first, &self.others)
    }

    /// Commits, and gives what a later transaction of the same tenure is begun with: [`reopen`](super::Fences::reopen).
    ///
    /// # Errors
    /// - [`FenceError::Poisoned`]: a statement before had failed, or had ended the transaction. Nothing is committed,
    ///   but what came after a statement that ended it, such as the definition of a table in MySQL, may be there.
    /// - [`FenceError::Store`]: of kind [`Busy`](idempotency::StoreErrorKind::Busy), nothing is committed. Of another
    ///   kind, nobody knows: run the whole again, with the same ticket; [`once`](super::once) tells whether the effect
    ///   is there.
    ///
    /// # Cancel safety
    /// Dropped before it was polled: rolled back. Later: carried out whole, in a task of its own.
    pub async fn commit(self) -> Result<Opened, FenceError> {
        background(async move { self.commit_here().await }).await
    }

    async fn commit_here(mut self) -> Result<Opened, FenceError> {
        if self.poisoned {
            self.rollback_here().await;
            return Err(FenceError::Poisoned);
        }
        // A COMMIT says that all is well also when it commits nothing.
        let timeline = match self.check().await {
            Ok(timeline) => timeline,
            Err(error) => {
                self.rollback_here().await;
                return Err(error);
            }
        };
        self.transaction.commit().await.map_err(D::store_error)?;
        Ok(Opened { first: self.first, others: self.others, timeline })
    }

    async fn check(&mut self) -> Result<i64, FenceError> {
        let timeline = self.desk.timeline(&mut self.transaction).await?;
        D::check(&mut self.transaction).await.map_err(D::failed)?;
        Ok(timeline)
    }

    /// Rolls back, and waits until that is done.
    ///
    /// # Cancel safety
    /// Rolled back in any case.
    pub async fn rollback(self) {
        let rolled_back = background(async move {
            self.rollback_here().await;
            Ok(())
        });
        // There is nothing that a caller could do: a session that does not answer any more is closed.
        let _ = rolled_back.await;
    }

    async fn rollback_here(self) {
        let _ = self.transaction.rollback().await;
    }

    /// Marks the effect of a record. True: it is the first time.
    pub(super) async fn mark(&mut self, id: &RecordId) -> Result<bool, FenceError> {
        let statement = self.desk.statement(D::ONCE).blob(Some(id.as_bytes()));
        // Until it is known to have succeeded: a dropped future may leave anything behind.
        self.poisoned = true;
        let marked = match D::change(&mut self.transaction, statement).await {
            Ok(changed) => changed == 1,
            Err(error) if D::is_duplicate(&error) => false,
            Err(error) => return Err(D::store_error(error).into()),
        };
        self.poisoned = false;
        Ok(marked)
    }
}

impl<D: FenceDatabase> Deref for FencedTransaction<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.transaction
    }
}

impl<D: FenceDatabase> DerefMut for FencedTransaction<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.transaction
    }
}

impl<D: FenceDatabase> fmt::Debug for FencedTransaction<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedTransaction")
            .field("first", &self.first)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

/// What a committed transaction had opened: what later transactions of the same tenure begin with. Each of them may
/// give a newer one, which is to be used from then on.
#[derive(Clone, Debug)]
pub struct Opened {
    pub(super) first: Tenure,
    pub(super) others: Vec<Tenure>,
    pub(super) timeline: i64,
}

impl Opened {
    /// The ticket that the fence was opened with; of several, that of the first resource in their order.
    #[must_use]
    pub fn ticket(&self) -> FenceTicket {
        self.first.ticket
    }

    /// What was opened, in the order in which it was.
    pub fn fences(&self) -> impl Iterator<Item = (&Resource, &FenceTicket)> {
        tenures(&self.first, &self.others)
    }
}

/// One fence that was opened.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) resource: Resource,
    pub(super) ticket: FenceTicket,
    pub(super) opened_at: Timestamp,
}

fn tenures<'t>(first: &'t Tenure, others: &'t [Tenure]) -> impl Iterator<Item = (&'t Resource, &'t FenceTicket)> {
    std::iter::once(first).chain(others).map(|tenure| (&tenure.resource, &tenure.ticket))
}
