//! BROKEN: `SELECT … FOR UPDATE` without timeouts.

use sqlx::{Postgres, Transaction};

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::approaches::ForUpdate;

/// There is never a double effect. But a process that is stopped, or cut off from the network, does not drop its connection: it
/// keeps the lock, and everybody else waits, each with a connection and a transaction of their own, until it goes on.
pub(crate) struct NoTimeouts(ForUpdate);

impl NoTimeouts {
    pub(crate) fn new(work: Work) -> Self {
        Self(ForUpdate(work))
    }
}

impl Approach for NoTimeouts {
    type Held = Transaction<'static, Postgres>;

    async fn take(&self) -> Result<Taken<Self::Held>, Failure> {
        self.0.take_in(self.0.0.pool.begin().await?).await
    }

    async fn finish(&self, transaction: Self::Held) -> Result<Finished, Failure> {
        self.0.finish(transaction).await
    }
}
