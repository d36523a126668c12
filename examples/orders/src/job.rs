//! What is to happen once.

use std::fmt;

use clap::ValueEnum;
use sqlx::{PgConnection, PgExecutor, PgPool};

/// The two kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workflow {
    /// A paid order becomes a parcel. Its row is there before anybody starts.
    Order,
    /// The books of a night are closed. There is no row until somebody starts.
    Night,
}

/// One order or one night.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) workflow: Workflow,
    /// The order's number, or the night's date.
    pub(crate) reference: String,
}

impl Job {
    /// A new order that is paid, or a night that nobody was at.
    pub(crate) async fn new(workflow: Workflow, pool: &PgPool) -> Result<Self, sqlx::Error> {
        let make = match workflow {
            Workflow::Order => "INSERT INTO orders DEFAULT VALUES RETURNING number",
            Workflow::Night => "SELECT (DATE '2026-01-01' + nextval('night_numbers')::INTEGER)::TEXT",
        };
        let reference = sqlx::query_scalar(make).fetch_one(pool).await?;
        Ok(Self { workflow, reference })
    }

    /// The effect, which must happen once.
    pub(crate) async fn happen(&self, connection: &mut PgConnection, worker: &str) -> Result<(), sqlx::Error> {
        let effect = match self.workflow {
            Workflow::Order => "INSERT INTO parcels (number, worker) VALUES ($1, $2)",
            Workflow::Night => "INSERT INTO closings (night, worker) VALUES ($1::DATE, $2)",
        };
        sqlx::query(effect).bind(&self.reference).bind(worker).execute(connection).await?;
        Ok(())
    }

    /// Says in the order or the night that it is done, whatever was said there before.
    pub(crate) async fn mark_done(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mark = match self.workflow {
            Workflow::Order => "UPDATE orders SET status = 'shipped' WHERE number = $1",
            Workflow::Night => {
                "INSERT INTO nights (night, status)
                 VALUES ($1::DATE, 'closed')
                 ON CONFLICT (night) DO UPDATE SET status = 'closed'"
            }
        };
        sqlx::query(mark).bind(&self.reference).execute(connection).await?;
        Ok(())
    }

    /// Whether it is done, by what is said there.
    pub(crate) async fn is_done(&self, database: impl PgExecutor<'_>) -> Result<bool, sqlx::Error> {
        let look = match self.workflow {
            Workflow::Order => "SELECT status = 'shipped' FROM orders WHERE number = $1",
            Workflow::Night => "SELECT status = 'closed' FROM nights WHERE night = $1::DATE",
        };
        Ok(sqlx::query_scalar(look).bind(&self.reference).fetch_optional(database).await?.unwrap_or(false))
    }

    /// Who had the effect, in their order: as many names as there are effects.
    pub(crate) async fn effects(&self, pool: &PgPool) -> Result<Vec<String>, sqlx::Error> {
        let effects = match self.workflow {
            Workflow::Order => "SELECT worker FROM parcels WHERE number = $1 ORDER BY id",
            Workflow::Night => "SELECT worker FROM closings WHERE night = $1::DATE ORDER BY id",
        };
        sqlx::query_scalar(effects).bind(&self.reference).fetch_all(pool).await
    }

    /// Its name among all jobs.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.workflow, self.reference)
    }
}

impl fmt::Display for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Order => "order",
            Self::Night => "night",
        })
    }
}
