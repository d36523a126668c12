//! The lock that everybody writes first: a row with an owner and an end.

use std::time::Duration;

use sqlx::SqlitePool;
use tokio::time::sleep;

use super::{Worker, millis};
use crate::Failure;
use crate::database::{charge as write_charge, charges};
use crate::event::{Asked, Gate, What, Who};

/// How the lock is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlock {
    /// The row is deleted, whoever's it is.
    Delete,
    /// The row is deleted if it is the caller's.
    CompareAndDelete,
}

/// Charges the invoice if nobody has.
pub(super) async fn charge(mut worker: Worker, unlock: Unlock) -> Result<(), Failure> {
    let lock = Lock { pool: worker.database.pool.clone(), owner: worker.who, ttl: worker.lease };
    let mut waited = false;
    let asked = loop {
        let asked = Asked::now();
        if lock.take().await? {
            break asked;
        }
        if !waited {
            worker.tell(What::Waited { left_ms: lock.left(None).await? })?;
            waited = true;
        }
        sleep(Duration::from_millis(5)).await;
    };
    let left_ms = millis(worker.lease);
    worker.tell(What::Took { token: None, left_ms, until: asked.until(left_ms) })?;

    let charges = charges(&mut *worker.database.pool.acquire().await?).await?;
    worker.tell(What::Counted { charges })?;
    if charges == 0 {
        // The strongest check that a client can make: it asks the lock itself, right before it writes.
        let asked = Asked::now();
        let left_ms = lock.left(Some(worker.who)).await?;
        if left_ms == 0 {
            return Err("the lock was over before the pause: give it more time with --lease".into());
        }
        worker.tell(What::Looked { left_ms, until: asked.until(left_ms) })?;
        // The world may stop here for as long as it likes.
        worker.pass(Gate::Writing).await?;
        let charged = write_charge(&worker.database.pool, worker.who).await?;
        worker.tell(if charged { What::Charged } else { What::ChargedAlready })?;
    }
    worker.pass(Gate::Leaving).await?;
    worker.tell(What::Released { owner: lock.give_back(unlock).await? })
}

struct Lock {
    pool: SqlitePool,
    owner: Who,
    ttl: Duration,
}

impl Lock {
    /// One atomic statement: this is not where it goes wrong.
    async fn take(&self) -> Result<bool, sqlx::Error> {
        let taken = sqlx::query(
            "INSERT INTO ttl_lock (resource, owner, expires_at)
             VALUES ('account', ?1, CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?2)
             ON CONFLICT (resource) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at
             WHERE ttl_lock.expires_at <= CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        );
        let ttl = i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX);
        Ok(taken.bind(self.owner.name()).bind(ttl).execute(&self.pool).await?.rows_affected() == 1)
    }

    /// How long the lock still runs, of this owner or of anybody; 0 when it is over.
    async fn left(&self, owner: Option<Who>) -> Result<u64, sqlx::Error> {
        let left: Option<i64> = sqlx::query_scalar(
            "SELECT expires_at - CAST(unixepoch('subsec') * 1000 AS INTEGER)
             FROM ttl_lock
             WHERE resource = 'account' AND owner = coalesce(?1, owner)",
        )
        .bind(owner.map(Who::name))
        .fetch_optional(&self.pool)
        .await?;
        Ok(left.and_then(|left| u64::try_from(left).ok()).unwrap_or_default())
    }

    /// Whose lock it was that is gone now.
    async fn give_back(&self, unlock: Unlock) -> Result<Option<Who>, sqlx::Error> {
        let delete = match unlock {
            Unlock::Delete => "DELETE FROM ttl_lock WHERE resource = 'account' RETURNING owner",
            Unlock::CompareAndDelete => {
                "DELETE FROM ttl_lock WHERE resource = 'account' AND owner = ?1 RETURNING owner"
            }
        };
        let mut delete = sqlx::query_scalar(delete);
        if unlock == Unlock::CompareAndDelete {
            delete = delete.bind(self.owner.name());
        }
        let owner: Option<String> = delete.fetch_optional(&self.pool).await?;
        Ok(owner.map(|owner| if owner == Who::A.name() { Who::A } else { Who::B }))
    }
}
