//! BROKEN: a UNIQUE row with an expiry and no token.

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::database;

/// The row keeps others out until it expires, and nothing asks whether it is still one's own when the effect happens: what a
/// lock with a time to live does. After a pause there are two holders and two effects.
///
/// Mended by a token in the row, and by an effect that depends on it ([`UniqueRow`](crate::approaches::UniqueRow)).
pub(crate) struct ExpiryAlone(pub(crate) Work);

const TAKE: &str = "
    INSERT INTO tasks AS task (name, holder, expires_at)
    VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
    ON CONFLICT (name) DO UPDATE
    SET holder = EXCLUDED.holder, expires_at = EXCLUDED.expires_at
    WHERE task.done_at IS NULL
      AND task.expires_at < clock_timestamp()
    RETURNING holder";

const FINISH: &str = "UPDATE tasks SET done_at = clock_timestamp() WHERE name = $1";

impl Approach for ExpiryAlone {
    type Held = ();

    async fn take(&self) -> Result<Taken<()>, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        let take = sqlx::query(TAKE).bind(job.name()).bind(worker).bind(timeout.as_secs_f64());
        match take.fetch_optional(pool).await? {
            Some(_) => Ok(Taken::Started(())),
            None => self.0.not_taken().await,
        }
    }

    async fn finish(&self, (): ()) -> Result<Finished, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        let mut transaction = database::begin(pool, *timeout).await?;
        sqlx::query(FINISH).bind(job.name()).execute(&mut *transaction).await?;
        job.happen(&mut transaction, worker).await?;
        job.mark_done(&mut transaction).await?;
        transaction.commit().await?;
        Ok(Finished::Done)
    }
}
