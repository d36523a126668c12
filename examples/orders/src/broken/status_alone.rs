//! BROKEN: finishes by the status alone.

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::approaches::Conditional;

/// Takes the order as [`Conditional`] does, and then asks only whether it is `processing`. After a take-over it is, for somebody
/// else: the late one ships what it packed before its pause (to the address of then), and the one who has the order is refused.
/// One parcel, and the wrong one.
pub(crate) struct StatusAlone(Conditional);

impl StatusAlone {
    pub(crate) fn new(work: Work) -> Self {
        Self(Conditional(work))
    }
}

/// `AND attempt = …` is missing.
const FINISH: &str = "
    WITH finished AS (
        UPDATE orders
        SET status = 'shipped'
        WHERE number = $1
          AND status = 'processing'
        RETURNING number
    )
    INSERT INTO parcels (number, worker)
    SELECT number, $2 FROM finished";

impl Approach for StatusAlone {
    type Held = i64;

    async fn take(&self) -> Result<Taken<i64>, Failure> {
        self.0.take().await
    }

    async fn finish(&self, _attempt: i64) -> Result<Finished, Failure> {
        let Work { pool, job, worker, .. } = &self.0.0;
        let finish = sqlx::query(FINISH).bind(&job.reference).bind(worker);
        match finish.execute(pool).await?.rows_affected() {
            0 => Ok(Finished::Refused("it is not processing any more".into())),
            _ => Ok(Finished::Done),
        }
    }
}
