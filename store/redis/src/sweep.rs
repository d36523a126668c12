//! Forgetting what is over, before Redis would.

use idempotency::{StoreError, Swept};
use tokio::sync::Mutex;

use crate::db::Db;
use crate::keys::Kind;
use crate::reply;
use crate::scan::{BATCH, Walk, run_on_each};
use crate::scripts::{self, Script};

pub(crate) async fn records(db: &Db, limit: usize) -> Result<Swept, StoreError> {
    sweep(db, &db.records, (Kind::Record, &scripts::SWEEP), limit).await
}

pub(crate) async fn leases(db: &Db, limit: usize) -> Result<usize, StoreError> {
    sweep(db, &db.leases, (Kind::Lease, &scripts::LEASE_SWEEP), limit).await.map(|swept| swept.purged)
}

/// Goes on where the last one stopped, to the end, to the limit, or until it has looked at enough.
async fn sweep(
    db: &Db,
    position: &Mutex<Option<Walk>>,
    (kind, script): (Kind, &Script),
    limit: usize,
) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    if limit == 0 {
        return Ok(swept);
    }
    let mut position = position.lock().await;
    // Put back unless the way ends, or an error or the caller ends it: then the next one begins anew.
    let mut walk = match position.take() {
        Some(walk) => walk,
        None => Walk::begin(db, kind).await?,
    };
    for _ in 0..MOST_STEPS {
        while !walk.met.is_empty() {
            let room = limit - swept.purged - swept.tombstoned;
            if room == 0 {
                *position = Some(walk);
                return Ok(Swept { more: true, ..swept });
            }
            let batch = room.min(BATCH).min(walk.met.len());
            let ids: Vec<_> = walk.met.drain(..batch).collect();
            for answer in run_on_each(db, kind, script, &ids).await? {
                swept = swept.and(counted(&reply::text(answer)?)?);
            }
        }
        if !walk.step(db).await? {
            return Ok(swept);
        }
    }
    *position = Some(walk);
    Ok(swept)
}

fn counted(word: &str) -> Result<Swept, StoreError> {
    let nothing = Swept::default();
    match word {
        "kept" => Ok(nothing),
        "dropped" => Ok(Swept { tombstoned: 1, ..nothing }),
        "purged" => Ok(Swept { purged: 1, ..nothing }),
        "escaped" => Ok(Swept { purged: 1, escapes: 1, ..nothing }),
        other => Err(reply::not(other)),
    }
}

/// A hundred thousand keys.
const MOST_STEPS: usize = 100;
