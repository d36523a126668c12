//! Connections of a pool, lent for a statement or a few, of which some stay at hand.
//!
//! sqlx's pool pings each connection that is given back, in a task of its own: a trip for each statement, which whoever comes next waits
//! for. So what is in order is kept for the next one, for a moment, while nobody waits for the pool to have it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool, SqlSafeStr, Transaction};

/// A pool, and those of its connections that are kept at hand.
pub(crate) struct Lending<DB: Database> {
    pool: Pool<DB>,
    owner: Owner,
    hand: Arc<Hand<DB>>,
    /// How many are about to ask the pool, or wait for it.
    waiting: AtomicUsize,
}

/// Who asks a pool for its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The store alone, by way of here.
    Store,
    /// The program too: nothing tells whether it waits.
    Program,
}

/// A connection on loan. Dropped, it goes back to the pool, which closes it if it is broken and rolls back what was begun.
pub(crate) struct Lent<DB: Database> {
    pub(crate) connection: PoolConnection<DB>,
    /// When the pool gave it.
    since: Instant,
}

impl<DB: Database> Lending<DB> {
    pub(crate) fn new(pool: Pool<DB>, owner: Owner) -> Self {
        Self { pool, owner, hand: Arc::new(Hand(Mutex::default())), waiting: AtomicUsize::new(0) }
    }

    pub(crate) const fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// One for the next statement: one that is at hand, or one from the pool.
    pub(crate) async fn lend(&self) -> Result<Lent<DB>, sqlx::Error> {
        // First: whoever keeps one either sees this, or has it kept when it is looked for.
        let _waiting = self.wait();
        let kept = self.hand.lock().lents.pop();
        match kept {
            Some((lent, _)) => Ok(lent),
            None => Ok(Lent { connection: self.pool.acquire().await?, since: Instant::now() }),
        }
    }

    /// A transaction, which has its connection from the pool.
    pub(crate) async fn begin_with(&self, statement: impl SqlSafeStr) -> Result<Transaction<'static, DB>, sqlx::Error> {
        let _waiting = self.wait();
        if !self.has_others() {
            self.hand.give_back(|_| true);
        }
        self.pool.begin_with(statement).await
    }

    /// Takes back one that is in order: its last statement was answered without an error, and it is in no transaction.
    pub(crate) fn take_back(&self, lent: Lent<DB>) {
        // Its lifetime, and what else the pool sees to, is seen to now and then.
        if lent.since.elapsed() < REST {
            self.hand.keep(lent);
        }
        let is_waited_for = match self.owner {
            Owner::Store => self.waiting.load(Ordering::SeqCst) > 0,
            Owner::Program => true,
        };
        if is_waited_for && !self.has_others() {
            self.hand.give_back(|_| true);
        }
    }

    /// Whether somebody who asks the pool finds one there, or is allowed a new one.
    fn has_others(&self) -> bool {
        self.pool.num_idle() > 0 || self.pool.size() < self.pool.options().get_max_connections()
    }

    fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(&self.waiting)
    }
}

struct Waiting<'l>(&'l AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What is kept, and only while somebody sees to it that it goes back.
struct Hand<DB: Database>(Mutex<Kept<DB>>);

struct Kept<DB: Database> {
    /// With the time from which it has not been used. The last one is lent first, so that those there are too many of go back.
    lents: Vec<(Lent<DB>, Instant)>,
    is_seen_to: bool,
}

impl<DB: Database> Default for Kept<DB> {
    fn default() -> Self {
        Self { lents: Vec::new(), is_seen_to: false }
    }
}

impl<DB: Database> Hand<DB> {
    fn keep(self: &Arc<Self>, lent: Lent<DB>) {
        let mut kept = self.lock();
        if kept.lents.len() == MOST {
            drop(kept);
            return;
        }
        kept.lents.push((lent, Instant::now()));
        if !std::mem::replace(&mut kept.is_seen_to, true) {
            drop(kept);
            tokio::spawn(Seeing(Arc::clone(self)).see_to_it());
        }
    }

    /// Gives the pool back those whose last use was long ago.
    fn give_back(&self, is_long_ago: impl Fn(Instant) -> bool) {
        let back: Vec<_> = self.lock().lents.extract_if(.., |(_, unused)| is_long_ago(*unused)).collect();
        // Without the lock.
        drop(back);
    }

    fn lock(&self) -> MutexGuard<'_, Kept<DB>> {
        // Nothing is left half done under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that what is kept goes back. It has a task, since a connection is given back within a runtime, and with that task's end, or
/// that of its runtime, nothing is kept.
struct Seeing<DB: Database>(Arc<Hand<DB>>);

impl<DB: Database> Seeing<DB> {
    async fn see_to_it(self) {
        loop {
            tokio::time::sleep(UNUSED).await;
            self.0.give_back(|unused| unused.elapsed() >= UNUSED);
            if self.0.lock().lents.is_empty() {
                return;
            }
        }
    }
}

impl<DB: Database> Drop for Seeing<DB> {
    fn drop(&mut self) {
        let mut kept = self.0.lock();
        kept.is_seen_to = false;
        let back = std::mem::take(&mut kept.lents);
        drop(kept);
        drop(back);
    }
}

/// How many are kept at most.
const MOST: usize = 8;

/// How long one is kept that nobody uses.
const UNUSED: Duration = Duration::from_millis(20);

/// After so long one goes back to the pool, however much it is used.
const REST: Duration = Duration::from_secs(1);

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use sqlx::sqlite::{Sqlite, SqliteConnectOptions, SqlitePoolOptions};
    use tokio::time::timeout;

    use super::*;

    /// Of any pool; SQLite's needs no server.
    fn lending(owner: Owner, most: u32, returned: &Arc<AtomicUsize>) -> Arc<Lending<Sqlite>> {
        let returned = Arc::clone(returned);
        let pool = SqlitePoolOptions::new().max_connections(most).after_release(move |_, _| {
            returned.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(true) })
        });
        Arc::new(Lending::new(pool.connect_lazy_with(SqliteConnectOptions::new().in_memory(true)), owner))
    }

    impl Lending<Sqlite> {
        fn at_hand(&self) -> usize {
            self.hand.lock().lents.len()
        }
    }

    #[tokio::test]
    async fn what_is_taken_back_is_lent_again_and_the_pool_knows_nothing_of_it() {
        let returned = Arc::default();
        let lending = lending(Owner::Store, 2, &returned);
        for _ in 0..10 {
            let lent = lending.lend().await.unwrap();
            lending.take_back(lent);
        }
        assert_eq!((lending.at_hand(), lending.pool().size(), returned.load(Ordering::SeqCst)), (1, 1, 0));
    }

    #[tokio::test]
    async fn what_nobody_uses_goes_back_and_so_does_what_is_dropped() {
        let returned = Arc::default();
        let lending = lending(Owner::Store, 2, &returned);
        let [kept, dropped] = [lending.lend().await.unwrap(), lending.lend().await.unwrap()];
        lending.take_back(kept);
        drop(dropped);
        let both = async {
            while returned.load(Ordering::SeqCst) < 2 {
                tokio::time::sleep(UNUSED).await;
            }
        };
        timeout(Duration::from_secs(30), both).await.expect("they go back");
        assert_eq!(lending.at_hand(), 0);
        // And it is seen to once more.
        let lent = lending.lend().await.unwrap();
        lending.take_back(lent);
        assert!(lending.at_hand() == 1 && lending.hand.lock().is_seen_to);
    }

    #[tokio::test]
    async fn what_somebody_waits_for_is_not_kept() {
        let lending = lending(Owner::Store, 1, &Arc::default());
        let lent = lending.lend().await.unwrap();
        let waits = tokio::spawn({
            let lending = Arc::clone(&lending);
            async move { lending.lend().await.map(drop) }
        });
        while lending.waiting.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        lending.take_back(lent);
        assert_eq!(lending.at_hand(), 0);
        waits.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_is_kept_is_given_up_for_a_transaction() {
        let lending = lending(Owner::Store, 1, &Arc::default());
        let lent = lending.lend().await.unwrap();
        lending.take_back(lent);
        assert_eq!(lending.at_hand(), 1);
        let begin = lending.begin_with("BEGIN");
        tokio::pin!(begin);
        assert!(futures_util::poll!(&mut begin).is_pending());
        assert_eq!(lending.at_hand(), 0);
        begin.await.unwrap().rollback().await.unwrap();
    }

    #[tokio::test]
    async fn of_a_pool_of_the_programs_own_the_last_one_is_not_kept() {
        for (most, kept) in [(1, 0), (2, 1)] {
            let lending = lending(Owner::Program, most, &Arc::default());
            let lent = lending.lend().await.unwrap();
            lending.take_back(lent);
            assert_eq!(lending.at_hand(), kept, "of {most}");
        }
    }

    #[tokio::test]
    async fn now_and_then_the_pool_has_each_of_them() {
        let lending = lending(Owner::Store, 1, &Arc::default());
        let mut lent = lending.lend().await.unwrap();
        lent.since = lent.since.checked_sub(REST).unwrap();
        lending.take_back(lent);
        assert_eq!(lending.at_hand(), 0);
    }

    #[tokio::test]
    async fn no_more_are_kept_than_a_few() {
        let lending = lending(Owner::Store, 20, &Arc::default());
        let mut lents = Vec::new();
        for _ in 0..20 {
            lents.push(lending.lend().await.unwrap());
        }
        lents.into_iter().for_each(|lent| lending.take_back(lent));
        assert_eq!(lending.at_hand(), MOST);
    }

    #[test]
    fn nothing_outlives_its_runtime() {
        let returned = Arc::default();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = runtime();
        let lending = first.block_on(async {
            let lending = lending(Owner::Store, 2, &returned);
            let lent = lending.lend().await.unwrap();
            lending.take_back(lent);
            lending
        });
        assert_eq!(lending.at_hand(), 1);
        drop(first);
        assert_eq!(lending.at_hand(), 0);
        runtime().block_on(async {
            let lent = lending.lend().await.unwrap();
            lending.take_back(lent);
            assert!(lending.hand.lock().is_seen_to);
        });
        // Outside of every runtime, where sqlx would panic if it were given a connection back.
        drop(lending);
    }
}
