//! What all ways of doing a job once have in common.

use std::time::Duration;

use sqlx::PgPool;

use crate::Failure;
use crate::job::Job;

/// A way of doing a job once: take it, work, finish it.
pub(crate) trait Approach {
    /// What whoever took the job finishes it with.
    type Held;

    /// Asks for the job.
    async fn take(&self) -> Result<Taken<Self::Held>, Failure>;

    /// Lets the effect happen, unless the job is somebody else's by now.
    async fn finish(&self, held: Self::Held) -> Result<Finished, Failure>;
}

/// What came of asking.
pub(crate) enum Taken<H> {
    Started(H),
    /// Somebody is at it. Whether they will ever finish is not known: ask again.
    Busy,
    AlreadyDone,
}

/// What came of finishing.
pub(crate) enum Finished {
    Done,
    /// Nothing happened, for this reason.
    Refused(String),
}

/// A job in the hands of one worker.
pub(crate) struct Work {
    pub(crate) pool: PgPool,
    pub(crate) job: Job,
    /// The worker's name.
    pub(crate) worker: String,
    /// How long a worker that says nothing keeps the others out.
    pub(crate) timeout: Duration,
}

impl Work {
    /// The answer to whoever did not get the job.
    pub(crate) async fn not_taken<H>(&self) -> Result<Taken<H>, Failure> {
        Ok(if self.job.is_done(&self.pool).await? { Taken::AlreadyDone } else { Taken::Busy })
    }
}
