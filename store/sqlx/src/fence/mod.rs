//! Fenced writes: of two that believe to be the holder, the older one cannot write.
//!
//! A lease runs out while its holder stands still (garbage collection, a VM that moves), another one takes over, and
//! the first one wakes and writes. Nothing that the first one could ask itself prevents that. The *database that
//! receives the write* does: it keeps the newest token per resource, in a row called a fence, and refuses older ones.
//!
//! First see whether you need one. Where the effect is a row in one database, a conditional `UPDATE … WHERE status =
//! 'PENDING'`, `SELECT … FOR UPDATE` or a UNIQUE row is simpler and stronger. A fence is for work that reads, computes
//! and writes in several transactions, or whose lock guards more than one store.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use idempotency::Resource;
//! use idempotency_sqlx::SqliteStore;
//! use idempotency_sqlx::fence::{FenceError, FencedTransaction, Fences, SqliteFences};
//! use sqlx::{Sqlite, SqlitePool};
//!
//! // Whoever writes asks for the transaction that only an opening gives.
//! async fn add(transaction: &mut FencedTransaction<Sqlite>, amount: i64) -> sqlx::Result<()> {
//!     let write = sqlx::query("UPDATE account SET balance = balance + ?1").bind(amount);
//!     write.execute(&mut **transaction).await.map(drop)
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}", folder.path().join("data.sqlite").display());
//! SqliteStore::migrate(&url).await?;
//! let pool = SqlitePool::connect(&url).await?;
//! sqlx::raw_sql("CREATE TABLE account (balance INTEGER); INSERT INTO account VALUES (100);").execute(&pool).await?;
//! let fences = SqliteFences::new(pool);
//! let account = Resource::parse("account/7")?;
//!
//! let mut transaction = fences.open(&account).await?;
//! add(&mut transaction, 5).await?;
//! let ours = transaction.commit().await?;
//!
//! // The same tenure goes on, until somebody else opens the fence.
//! fences.reopen(&ours).await?.commit().await?;
//! fences.open(&account).await?.commit().await?;
//! assert!(matches!(fences.reopen(&ours).await, Err(FenceError::Superseded { .. })));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! The rules:
//!
//! 1. **Open, then read, then write.** A new holder advances the fence *before it reads anything*. A token that is
//!    compared only when something is written lets an update get lost: the superseded holder can write after the new
//!    one has read and before it writes, and its token is the largest until then. What was read before the opening is
//!    to be read again.
//! 2. **The opening is the transaction's first statement**, on a row that it locks until the transaction ends, and a
//!    statement of its own. Whoever comes meanwhile waits, and the next statement sees what was written before. Checks
//!    that are not locked, and any check that is a part of the write, see what was there before they waited.
//! 3. **The fence before the rows**, everywhere; the other order beside it deadlocks. [`open_all`](Fences::open_all)
//!    opens several in one order.
//! 4. **The database mints the token** ([`open`](Fences::open)) unless one lock guards several stores; then it comes
//!    from a lease ([`open_with`](Fences::open_with), [`open_healing`](Fences::open_healing)). What the database mints
//!    is lost and restored together with the data, so it is never behind it.
//! 5. **A token and its holder.** A source that lost its memory can give one token to two, so the same token is
//!    admitted again for the same holder alone. A ticket without a holder is good for one transaction. See [`Admit`].
//! 6. **Sources do not mix.** Numbers of two sources say nothing about each other; a fence refuses all but its own
//!    until an operator [resets](Fences::reset) it. A token of a clock that is more than an hour ahead of the
//!    database's is refused and not stored.
//! 7. **A fence orders writers; it does not make a repeat a no-op.** What may be run again marks its effect with
//!    [`once()`].
//! 8. **After an error, drop the transaction.** It is rolled back, and the fence with it.
//! 9. **A tenure of several transactions** goes on with [`reopen`](Fences::reopen), which refuses where the database
//!    may have been set back since: by the number of PostgreSQL's timeline, and everywhere by what the tenure itself
//!    has committed. An acknowledged commit can vanish all the same when a replica that lagged behind takes over: wait
//!    for a quorum, or bear it.
//!
//! Kept: effects written through an opened fence are linearizable per resource, also when a paused holder wakes late.
//! Not promised: that two holders' *code* does not run at once, any bound in time, and anything across two databases
//! but the same order in both.
//!
//! | | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | opening | one statement where the fence is there | a locking read, then a write | one statement, in `BEGIN IMMEDIATE` |
//! | transactions beside each other in a tenure | [`verify`](Fences::verify) | `verify` | one after the other |
//! | a holder that is stopped in a transaction keeps others out | for [`idle_timeout`](PostgresFences::idle_timeout), 30 s | until the server is told to end it: [`MySqlFences`] | until it goes on or dies |
//! | failover between two transactions of a tenure | seen by the timeline and the tenure's commits | seen by the tenure's commits | a restored file: likewise |
//!
//! The tables `idempotency_fences`, `idempotency_fence_watermarks` and `idempotency_once` are made by the stores'
//! `migrate`, and must be in the database that holds the guarded rows. [`purge`](Fences::purge) and
//! [`forget_once`](Fences::forget_once) keep them small. [`ColumnFence`] keeps the token in the guarded row instead.
//!
//! Counters: `idempotency_fences_superseded_total`, `idempotency_tokens_regressed_total`.

mod admit;
mod column;
mod column_macro;
mod dialect;
mod error;
mod fences;
mod healing;
mod keeping;
#[cfg(feature = "mysql")]
mod mysql;
mod once;
mod opening;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transaction;
mod tries;

pub use admit::Admit;
pub use column::{ColumnFence, Written};
pub use dialect::FenceDatabase;
pub use error::FenceError;
pub use fences::Fences;
#[cfg(feature = "mysql")]
pub use mysql::MySqlFences;
pub use once::{Once, once};
#[cfg(feature = "postgres")]
pub use postgres::PostgresFences;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteFences;
pub use transaction::{FencedTransaction, Opened};

/// Runs something that nobody interrupts.
async fn background<T: Send + 'static>(
    operation: impl Future<Output = Result<T, FenceError>> + Send + 'static,
) -> Result<T, FenceError> {
    crate::task::run(async move { Ok(operation.await) }).await?
}
