//! (a) A conditional UPDATE of the status, with an attempt column.

use sqlx::PgPool;

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::job::Workflow;

/// The status says that somebody is at it, the attempt says who. Of two UPDATEs of one row the second waits for the first, looks
/// again, and finds nothing to do.
///
/// **Right for** work on a row that has a status anyway, above all where it takes long or calls somebody else: nothing is locked
/// while it runs. The first thing to think of.
///
/// **Costs** three columns and two short statements, and a timeout to choose: a worker that died leaves its order `processing`, and
/// somebody (here whoever asks next) must take it over after a while. Too short, and live workers are overtaken: they are
/// refused, and their work is lost.
///
/// **Breaks** when the one who finishes names the status alone ([`StatusAlone`](crate::broken::StatusAlone)): it is `processing`
/// again, for somebody else. The attempt is a fencing token that the database mints. And when what the work did is not in the
/// finishing statement's transaction: a mail that was sent is sent again by the next attempt.
pub(crate) struct Conditional(pub(crate) Work);

struct Statements {
    /// Makes a row to be claimed, where none comes from elsewhere.
    prepare: Option<&'static str>,
    claim: &'static str,
    take_over: &'static str,
    finish: &'static str,
}

const ORDER: Statements = Statements {
    prepare: None,
    claim: "UPDATE orders
            SET status = 'processing', owner = $2, attempt = attempt + 1, claimed_at = clock_timestamp()
            WHERE number = $1
              AND status = 'paid'
            RETURNING attempt",
    // The reaper. Where it looks for any order that was left behind, it does so with FOR UPDATE SKIP LOCKED in a sub-select.
    take_over: "UPDATE orders
                SET owner = $2, attempt = attempt + 1, claimed_at = clock_timestamp()
                WHERE number = $1
                  AND status = 'processing'
                  AND claimed_at < clock_timestamp() - make_interval(secs => $3)
                RETURNING attempt",
    // One statement, so that nobody can stop in the middle of it. Effects that take more are in one transaction with the UPDATE,
    // and come after it.
    finish: "WITH finished AS (
                 UPDATE orders
                 SET status = 'shipped'
                 WHERE number = $1
                   AND status = 'processing'
                   AND attempt = $2
                 RETURNING number
             )
             INSERT INTO parcels (number, worker)
             SELECT number, $3 FROM finished",
};

const NIGHT: Statements = Statements {
    prepare: Some("INSERT INTO nights (night) VALUES ($1::DATE) ON CONFLICT DO NOTHING"),
    claim: "UPDATE nights
            SET status = 'processing', owner = $2, attempt = attempt + 1, claimed_at = clock_timestamp()
            WHERE night = $1::DATE
              AND status = 'due'
            RETURNING attempt",
    take_over: "UPDATE nights
                SET owner = $2, attempt = attempt + 1, claimed_at = clock_timestamp()
                WHERE night = $1::DATE
                  AND status = 'processing'
                  AND claimed_at < clock_timestamp() - make_interval(secs => $3)
                RETURNING attempt",
    finish: "WITH finished AS (
                 UPDATE nights
                 SET status = 'closed'
                 WHERE night = $1::DATE
                   AND status = 'processing'
                   AND attempt = $2
                 RETURNING night
             )
             INSERT INTO closings (night, worker)
             SELECT night, $3 FROM finished",
};

impl Approach for Conditional {
    /// The attempt.
    type Held = i64;

    async fn take(&self) -> Result<Taken<i64>, Failure> {
        let Work { pool, job, worker, timeout } = &self.0;
        let statements = self.statements();
        if let Some(prepare) = statements.prepare {
            sqlx::query(prepare).bind(&job.reference).execute(pool).await?;
        }
        let claim = sqlx::query_scalar(statements.claim).bind(&job.reference).bind(worker);
        if let Some(attempt) = claim.fetch_optional(pool).await? {
            return Ok(Taken::Started(attempt));
        }
        let take_over = sqlx::query_scalar(statements.take_over).bind(&job.reference).bind(worker);
        match take_over.bind(timeout.as_secs_f64()).fetch_optional(pool).await? {
            Some(attempt) => Ok(Taken::Started(attempt)),
            None => self.0.not_taken().await,
        }
    }

    async fn finish(&self, attempt: i64) -> Result<Finished, Failure> {
        let Work { pool, job, worker, .. } = &self.0;
        let finish = sqlx::query(self.statements().finish).bind(&job.reference).bind(attempt).bind(worker);
        match finish.execute(pool).await?.rows_affected() {
            0 => Ok(Finished::Refused(format!("attempt {attempt} is over, {} is on", self.current(pool).await?))),
            _ => Ok(Finished::Done),
        }
    }
}

impl Conditional {
    fn statements(&self) -> &'static Statements {
        match self.0.job.workflow {
            Workflow::Order => &ORDER,
            Workflow::Night => &NIGHT,
        }
    }

    /// For the message alone.
    async fn current(&self, pool: &PgPool) -> Result<i64, sqlx::Error> {
        let current = match self.0.job.workflow {
            Workflow::Order => "SELECT attempt FROM orders WHERE number = $1",
            Workflow::Night => "SELECT attempt FROM nights WHERE night = $1::DATE",
        };
        sqlx::query_scalar(current).bind(&self.0.job.reference).fetch_one(pool).await
    }
}
