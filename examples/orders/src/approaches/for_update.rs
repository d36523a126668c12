//! (b) `SELECT … FOR UPDATE`, held for the whole section.

use sqlx::{PgConnection, Postgres, Transaction};

use crate::Failure;
use crate::approach::{Approach, Finished, Taken, Work};
use crate::database::{self, has_state, is_cut_off};
use crate::job::Workflow;

/// One transaction that locks the row, reads it, works, writes, commits. Nothing to take over and no token: a transaction that
/// ended can write nothing any more.
///
/// **Right for** work that is short and stays in this database: some reads, some sums, some writes.
///
/// **Costs** a connection and an open transaction for as long as the work takes, and everybody who wants the row waits. The wait
/// is chosen by who waits: a customer waits a little (`lock_timeout`), a second cron host not at all (NOWAIT), a pool of workers
/// for which any order will do passes by what is locked:
///
/// ```sql
/// SELECT number FROM orders WHERE status = 'paid' ORDER BY number FOR UPDATE SKIP LOCKED LIMIT 1
/// ```
///
/// **Breaks** without `idle_in_transaction_session_timeout`: a dead process drops its connection and with it the lock, a *stopped*
/// one keeps both for as long as it stands ([`NoTimeouts`](crate::broken::NoTimeouts)). With it the server ends the transaction, and who wakes late finds its connection gone. It also breaks
/// when the work calls somebody else: a call is not rolled back, and one that hangs holds the lock.
pub(crate) struct ForUpdate(pub(crate) Work);

impl Approach for ForUpdate {
    /// The open transaction.
    type Held = Transaction<'static, Postgres>;

    async fn take(&self) -> Result<Taken<Self::Held>, Failure> {
        // SET LOCAL lock_timeout, SET LOCAL idle_in_transaction_session_timeout
        self.take_in(database::begin(&self.0.pool, self.0.timeout).await?).await
    }

    async fn finish(&self, mut transaction: Self::Held) -> Result<Finished, Failure> {
        match self.write(&mut transaction).await {
            // An error from here on would leave open whether it was committed.
            Ok(()) => transaction.commit().await?,
            Err(error) if is_cut_off(&error) => {
                return Ok(Finished::Refused("the server has ended its transaction".into()));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Finished::Done)
    }
}

impl ForUpdate {
    /// Locks the row, and looks.
    pub(crate) async fn take_in(
        &self,
        mut transaction: Transaction<'static, Postgres>,
    ) -> Result<Taken<Transaction<'static, Postgres>>, Failure> {
        let job = &self.0.job;
        let lock = match job.workflow {
            Workflow::Order => "SELECT status = 'shipped' FROM orders WHERE number = $1 FOR UPDATE",
            Workflow::Night => {
                // Only a row that is there can be locked.
                let prepare = "INSERT INTO nights (night) VALUES ($1::DATE) ON CONFLICT DO NOTHING";
                sqlx::query(prepare).bind(&job.reference).execute(&self.0.pool).await?;
                "SELECT status = 'closed' FROM nights WHERE night = $1::DATE FOR UPDATE NOWAIT"
            }
        };
        match sqlx::query_scalar(lock).bind(&job.reference).fetch_one(&mut *transaction).await {
            Ok(true) => Ok(Taken::AlreadyDone),
            Ok(false) => Ok(Taken::Started(transaction)),
            Err(error) if has_state(&error, LOCK_NOT_AVAILABLE) => Ok(Taken::Busy),
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.0.job.happen(connection, &self.0.worker).await?;
        self.0.job.mark_done(connection).await
    }
}

const LOCK_NOT_AVAILABLE: &str = "55P03";
