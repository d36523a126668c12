//! (c) A UNIQUE row for the task, with an expiry and a token.

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::database;

/// Whoever inserts the row has the task. A crash leaves the row, so it expires; an expiry can be late, so the row has a token, and
/// the one who finishes names it.
///
/// **Right for** a task that has no row of its own: a night, an import of a file, a message id. One table for tasks of all kinds.
///
/// **Costs** a table, rows that somebody clears away some day, and the timeout of every expiry.
///
/// **Breaks** as "insert and done", without an expiry: the first crash blocks the task for good. With an expiry and without a
/// token ([`ExpiryAlone`](crate::broken::ExpiryAlone)): the first pause makes two effects. And when the finishing UPDATE is not
/// in the effect's transaction, before the effect: what is checked earlier can change before the write.
pub(crate) struct UniqueRow(pub(crate) Work);

/// Inserts the row, or takes it over if it has expired: one statement decides. Two at once: the second waits for the first and
/// finds the row.
const TAKE: &str = "
    INSERT INTO tasks AS task (name, holder, expires_at)
    VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
    ON CONFLICT (name) DO UPDATE
    SET token = task.token + 1, holder = EXCLUDED.holder, expires_at = EXCLUDED.expires_at
    WHERE task.done_at IS NULL
      AND task.expires_at < clock_timestamp()
    RETURNING token";

/// Also keeps everybody from taking over until the end of the transaction.
const FINISH: &str = "
    UPDATE tasks
    SET done_at = clock_timestamp()
    WHERE name = $1
      AND token = $2
      AND done_at IS NULL";

impl Approach for UniqueRow {
    /// The token.
    type Held = i64;

    async fn take(&self) -> Result<Taken<i64>, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        let take = sqlx::query_scalar(TAKE).bind(job.name()).bind(worker).bind(timeout.as_secs_f64());
        match take.fetch_optional(pool).await? {
            Some(token) => Ok(Taken::Started(token)),
            None => self.0.not_taken().await,
        }
    }

    async fn finish(&self, token: i64) -> Result<Finished, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        // With timeouts: stopped between two of its statements, it would keep the next one from taking over.
        let mut transaction = database::begin(pool, *timeout).await?;
        let finish = sqlx::query(FINISH).bind(job.name()).bind(token);
        if finish.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Ok(Finished::Refused(format!("token {token} is not the row's any more")));
        }
        job.happen(&mut transaction, worker).await?;
        job.mark_done(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Finished::Done)
    }
}
