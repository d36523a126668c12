//! BROKEN: looks, then writes.

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::database;

/// Looks at the status and then acts on what it saw, in a transaction even. At READ COMMITTED a plain SELECT locks nothing: two
/// look before either has written, and both write.
///
/// Mended by saying the condition in the UPDATE ([`Conditional`](crate::approaches::Conditional)) or by looking with FOR
/// UPDATE ([`ForUpdate`](crate::approaches::ForUpdate)).
pub(crate) struct LookThenWrite(pub(crate) Work);

impl Approach for LookThenWrite {
    type Held = ();

    async fn take(&self) -> Result<Taken<()>, Failure> {
        Ok(if self.0.job.is_done(&self.0.pool).await? { Taken::AlreadyDone } else { Taken::Started(()) })
    }

    async fn finish(&self, (): ()) -> Result<Finished, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        let mut transaction = database::begin(pool, *timeout).await?;
        job.mark_done(&mut transaction).await?;
        job.happen(&mut transaction, worker).await?;
        transaction.commit().await?;
        Ok(Finished::Done)
    }
}
