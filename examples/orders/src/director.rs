//! Two workers, one job, and what happens to one of them.

use std::time::Duration;

use sqlx::PgPool;

use crate::Failure;
use crate::job::{Job, Workflow};
use crate::process::Worker;
use crate::report::Cell;
use crate::way::Way;

/// What happens to the worker that starts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// Nothing: the other one is there at the same moment.
    TwoAtOnce,
    /// `kill -9` in the middle.
    Killed,
    /// SIGSTOP in the middle, and SIGCONT when the other one has taken over and is in the middle itself.
    Paused,
}

/// Has two workers do jobs. Their order is made by what they say and by what the server says of their sessions, not by
/// sleeping.
#[derive(Clone)]
pub(crate) struct Director {
    pub(crate) url: String,
    pub(crate) pool: PgPool,
    pub(crate) timeout: Duration,
}

impl Director {
    /// One job, done in this way in this situation.
    pub(crate) async fn play(self, way: Way, workflow: Workflow, situation: Situation) -> Result<Cell, Failure> {
        let job = Job::new(workflow, &self.pool).await?;
        let [mut first, mut second] = self.race(way, &job).await?;
        let (first_told, second_told) = match situation {
            Situation::TwoAtOnce => (Some(first.end().await?), second.end().await?),
            Situation::Killed => {
                first.kill().await?;
                (None, second.end().await?)
            }
            Situation::Paused => {
                first.pause().await?;
                // By itself, when the first one's time is over. Whoever takes much longer waits for the first one to wake.
                second.take_over(3 * self.timeout).await?;
                first.resume()?;
                (Some(first.end().await?), second.end().await?)
            }
        };
        let effects = job.effects(&self.pool).await?;
        let by = effects.into_iter().map(|name| if name == first.name { "first" } else { "second" }).collect();
        Ok(Cell { way, workflow, situation, by, first_told, second_told })
    }

    /// Sets two workers off at once, and waits until each has started or is seen to wait. The first one has started; so
    /// may have the second, which is a fault.
    async fn race(&self, way: Way, job: &Job) -> Result<[Worker; 2], Failure> {
        let start = |name| Worker::start(name, &self.url, way, job, self.timeout);
        let (one, other) = tokio::try_join!(start("red"), start("blue"))?;
        let mut workers = [one, other];
        for worker in &mut workers {
            worker.tell("go").await;
        }
        // Whoever waits for a moment may be the one who starts.
        while !workers.iter().any(Worker::has_started) {
            for worker in &mut workers {
                self.settle(worker).await?;
            }
        }
        for worker in &mut workers {
            self.settle(worker).await?;
        }
        if !workers[0].has_started() {
            workers.swap(0, 1);
        }
        Ok(workers)
    }

    /// Waits until it has started, or waits itself: it says so, or its session waits for a lock.
    async fn settle(&self, worker: &mut Worker) -> Result<(), Failure> {
        while !worker.has_started() {
            match worker.hear_within(A_MOMENT).await? {
                Some(_) => break,
                None if self.waits_for_lock(worker).await? => break,
                None => {}
            }
        }
        Ok(())
    }

    async fn waits_for_lock(&self, worker: &Worker) -> Result<bool, sqlx::Error> {
        let look = "SELECT EXISTS (
                        SELECT FROM pg_stat_activity
                        WHERE application_name = $1
                          AND wait_event_type = 'Lock'
                    )";
        sqlx::query_scalar(look).bind(&worker.sessions).fetch_one(&self.pool).await
    }
}

const A_MOMENT: Duration = Duration::from_millis(10);
