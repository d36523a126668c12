//! All our keys, a page at a time.

use std::collections::VecDeque;

use futures_util::future::join_all;
use idempotency::{RecordId, StoreError};
use redis::Value;

use crate::db::Db;
use crate::error::store_error;
use crate::keys::Kind;
use crate::link::Node;
use crate::reply;
use crate::scripts::Script;

/// A way through the keys of one kind at every primary. A key that is there all the time is met at least once.
pub(crate) struct Walk {
    kind: Kind,
    /// Those still to be walked; the last one is being walked.
    nodes: Vec<Node>,
    cursor: u64,
    /// Met, and not handed out yet.
    pub(crate) met: VecDeque<RecordId>,
}

impl Walk {
    pub(crate) async fn begin(db: &Db, kind: Kind) -> Result<Self, StoreError> {
        let nodes = db.link.primaries().await.map_err(store_error)?;
        Ok(Self { kind, nodes, cursor: 0, met: VecDeque::new() })
    }

    /// Meets some more, maybe none. False when there is nothing left to walk.
    pub(crate) async fn step(&mut self, db: &Db) -> Result<bool, StoreError> {
        let Some(node) = self.nodes.last() else { return Ok(false) };
        let mut scan = redis::cmd("SCAN");
        scan.arg(self.cursor).arg("MATCH").arg(db.keys.pattern(self.kind)).arg("COUNT").arg(PAGE);
        let page = db.link.on(node, &scan).await.map_err(store_error)?;
        let (cursor, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(page).map_err(|_| reply::unexpected())?;
        self.met.extend(keys.iter().filter_map(|key| db.keys.id(self.kind, key)));
        self.cursor = cursor;
        if cursor == 0 {
            self.nodes.pop();
        }
        Ok(true)
    }
}

/// Runs a script on each of these, on all at the same time.
pub(crate) async fn run_on_each(
    db: &Db,
    kind: Kind,
    script: &Script,
    ids: &[RecordId],
) -> Result<Vec<Value>, StoreError> {
    let runs = ids.iter().map(|id| async move { db.run(script, &db.keys.of(kind, id), |_| {}).await });
    join_all(runs).await.into_iter().collect()
}

/// How many keys a server looks at for one answer: a fraction of a millisecond.
const PAGE: usize = 1000;

/// How many keys a script is run on at the same time.
pub(crate) const BATCH: usize = 128;
