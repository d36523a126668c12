//! Connections of a pool, lent for a statement or a few, of which some stay at hand.
//!
//! sqlx's pool pings each connection that is given back, in a task of its own: a trip for each statement, which whoever comes next waits
//! for. So what is in order is kept for the next one, for a moment, while nobody waits for the pool to have it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool, SqlSafeStr, Transaction};
use tokio::runtime;

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

/// Where a few statements run: each on its own, or all in one transaction. Dropped, that is rolled back.
#[must_use]
pub(crate) enum Session<'l, DB: Database> {
    Alone(&'l mut DB::Connection),
    Transaction(Transaction<'l, DB>),
}

impl<DB: Database> Lent<DB> {
    /// In a transaction that begins with this statement, if there is one.
    pub(crate) async fn session(&mut self, begin: Option<&'static str>) -> Result<Session<'_, DB>, sqlx::Error> {
        Ok(match begin {
            None => Session::Alone(&mut *self.connection),
            Some(begin) => {
                Session::Transaction(Transaction::begin(&mut *self.connection, Some(begin.into_sql_str())).await?)
            }
        })
    }
}

impl<DB: Database> Session<'_, DB> {
    pub(crate) fn connection(&mut self) -> &mut DB::Connection {
        match self {
            Self::Alone(connection) => connection,
            Self::Transaction(transaction) => transaction,
        }
    }

    /// Commits, if there is something to be committed.
    pub(crate) async fn end(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::Transaction(transaction) => transaction.commit().await,
        }
    }
}

impl<DB: Database> Lending<DB> {
    pub(crate) fn new(pool: Pool<DB>, owner: Owner) -> Self {
        Self { pool, owner, hand: Arc::new(Hand(Mutex::default())), waiting: AtomicUsize::new(0) }
    }

    #[cfg(feature = "mysql")]
    pub(crate) const fn owner(&self) -> Owner {
        self.owner
    }

    pub(crate) const fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// One for the next statement: one that is at hand, or one from the pool.
    pub(crate) async fn lend(&self) -> Result<Lent<DB>, sqlx::Error> {
        // First: whoever keeps one either sees this, or has it kept when it is looked for.
        let _waiting = self.wait();
        match self.hand.take().filter(|_| !self.pool.is_closed()) {
            Some(lent) => Ok(lent),
            None => Ok(Lent { connection: self.pool.acquire().await?, since: Instant::now() }),
        }
    }

    /// A transaction. Its connection goes back to the pool.
    pub(crate) async fn begin_with(&self, statement: impl SqlSafeStr) -> Result<Transaction<'static, DB>, sqlx::Error> {
        let lent = self.lend().await?;
        Transaction::begin(lent.connection, Some(statement.into_sql_str())).await
    }

    /// Takes back one that is in order: its last statement was answered without an error, and it is in no transaction.
    pub(crate) fn take_back(&self, lent: Lent<DB>) {
        // Its lifetime, and what else the pool sees to, is seen to now and then.
        if lent.since.elapsed() < REST && !self.pool.is_closed() {
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
    /// In which runtime it is seen to that they go back.
    seen_to_in: Option<runtime::Id>,
}

impl<DB: Database> Default for Kept<DB> {
    fn default() -> Self {
        Self { lents: Vec::new(), seen_to_in: None }
    }
}

impl<DB: Database> Hand<DB> {
    fn keep(self: &Arc<Self>, lent: Lent<DB>) {
        let here = runtime::Handle::current();
        let mut kept = self.lock();
        // Another runtime may not be driven for as long as there is one of this one's.
        let is_seen_to_elsewhere = kept.seen_to_in.is_some_and(|id| id != here.id());
        if kept.lents.len() == MOST || is_seen_to_elsewhere {
            drop(kept);
            return;
        }
        kept.lents.push((lent, Instant::now()));
        if kept.seen_to_in.replace(here.id()).is_none() {
            drop(kept);
            here.spawn(Seeing(Arc::clone(self)).see_to_it());
        }
    }

    /// The one that was used last. None that lay there for long: nobody saw to it, since the runtime stood still, and its server may be gone.
    fn take(&self) -> Option<Lent<DB>> {
        self.give_back(|unused| unused.elapsed() >= FRESH);
        self.lock().lents.pop().map(|(lent, _)| lent)
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
        self.0.lock().seen_to_in = None;
        self.0.give_back(|_| true);
    }
}

/// How many are kept at most.
const MOST: usize = 8;

/// How long one is kept that nobody uses.
const UNUSED: Duration = Duration::from_millis(20);

/// A connection used so recently is taken to live.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

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
        assert!(lending.at_hand() == 1 && lending.hand.lock().seen_to_in.is_some());
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
    async fn a_transaction_takes_what_is_kept_and_opens_nothing_beside_it() {
        let lending = lending(Owner::Store, 2, &Arc::default());
        let lent = lending.lend().await.unwrap();
        lending.take_back(lent);
        let begun = lending.begin_with("BEGIN").await.unwrap();
        assert_eq!((lending.at_hand(), lending.pool().size()), (0, 1));
        begun.rollback().await.unwrap();
    }

    #[tokio::test]
    async fn what_lay_there_while_nobody_looked_is_not_lent() {
        let returned = Arc::default();
        let lending = lending(Owner::Store, 2, &returned);
        let lent = lending.lend().await.unwrap();
        lending.take_back(lent);
        for (_, unused) in &mut lending.hand.lock().lents {
            *unused = unused.checked_sub(FRESH).unwrap();
        }
        drop(lending.lend().await.unwrap());
        assert_eq!((lending.at_hand(), returned.load(Ordering::SeqCst)), (0, 1));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_pool_that_is_closed() {
        let lending = lending(Owner::Store, 2, &Arc::default());
        let [kept, lent] = [lending.lend().await.unwrap(), lending.lend().await.unwrap()];
        lending.take_back(kept);
        let close = lending.pool().close();
        lending.take_back(lent);
        assert_eq!(lending.at_hand(), 1, "the one from before");
        assert!(matches!(lending.lend().await, Err(sqlx::Error::PoolClosed)));
        assert_eq!(lending.at_hand(), 0);
        timeout(Duration::from_secs(30), close).await.expect("it is closed");
    }

    #[test]
    fn only_one_runtime_keeps_some_at_a_time() {
        let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let [first, second] = [runtime(), runtime()];
        let lending = first.block_on(async { lending(Owner::Store, 2, &Arc::default()) });
        let lent = second.block_on(lending.lend()).unwrap();
        let kept = first.block_on(lending.lend()).unwrap();
        first.block_on(async { lending.take_back(kept) });
        second.block_on(async { lending.take_back(lent) });
        assert_eq!(lending.at_hand(), 1);
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
        let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
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
            assert_eq!(lending.at_hand(), 1);
        });
        // Outside of every runtime, where sqlx would panic if it were given a connection back.
        drop(lending);
    }
}
