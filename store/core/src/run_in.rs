//! A plain function whose effect is in the store's own database.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::{recorded, replay};
use crate::transaction::{self, BeginError, CommitError, TransactionalStore};
use crate::{Answer, Attempt, Engine, Operation, Outcome, Ran, RunError, WorkError};

/// Runs `work` once for `operation` in a transaction of the store's database that also records its value, and gives a duplicate the
/// recorded value. Effect and value are there after one commit, or neither is: whatever is killed or paused at whatever
/// moment, the effect happens at most once per key within the tombstone window, and exactly once under
/// [`Recovery::Rerun`](crate::Recovery::Rerun) with a caller that asks until it is answered.
///
/// An error or a panic of `work` rolls back and frees the key. `work` must not commit, and must have no effect outside of its transaction. Use
/// `Rerun`: nothing of an attempt that ended stays, so there is nothing to hold the key for.
///
/// An example is at the stores, such as `idempotency_sqlx::SqliteStore`.
///
/// # Errors
/// As [`run`](crate::run()), and [`RunError::Store`] also when the transaction could not be begun or committed: for certain not
/// committed, the key is free again; otherwise it is found out in the background, and a duplicate is told.
///
/// # Cancel safety
/// Dropped before the commit was begun: rolled back, and the claim is left to its lease, the transaction limit. Dropped later:
/// the commit is carried out.
pub async fn run_in<St, T, E, W>(engine: &Engine<St>, operation: &Operation, work: W) -> Result<Ran<T>, RunError<E>>
where
    St: TransactionalStore,
    T: Serialize + DeserializeOwned,
    W: AsyncFnOnce(&Attempt, &mut St::Transaction) -> Result<T, E>,
{
    let held = match engine.claim(operation).await? {
        Answer::Run(held) => held,
        Answer::DoNot(claimed) => return replay(claimed),
    };
    let store = engine.store();
    let begun = transaction::begin(store, held.attempt(), async |opening| store.open_transaction(opening).await).await;
    let mut transaction = match begun {
        Ok(transaction) => transaction,
        Err(BeginError::Superseded) => {
            // Nothing ran, and where nobody took over the key is free.
            held.release().await;
            return replay(engine.look(operation).await?);
        }
        Err(BeginError::Store(error)) => {
            held.release().await;
            return Err(RunError::Store(error));
        }
    };
    let worked = AssertUnwindSafe(async { work(held.attempt(), &mut transaction).await }).catch_unwind().await;
    let value = match worked {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            transaction::roll_back(store, held.attempt(), transaction).await;
            held.release().await;
            return Err(RunError::Work(WorkError::NothingDone(error)));
        }
        Err(panic) => {
            transaction::roll_back(store, held.attempt(), transaction).await;
            held.release().await;
            std::panic::resume_unwind(panic);
        }
    };
    let (outcome, unwritable) = match recorded(&value) {
        Ok(outcome) => (outcome, None),
        // The effect counts all the same.
        Err(error) => (Outcome::not_kept(0), Some(error)),
    };
    match transaction::commit(store, held.attempt(), transaction, outcome).await {
        Ok(_) => unwritable.map_or(Ok(Ran { value, replayed: false }), |error| Err(RunError::Value(error))),
        Err(CommitError::Superseded) => replay(engine.look(operation).await?),
        Err(CommitError::NotCommitted(error)) => {
            held.release().await;
            Err(RunError::Store(error))
        }
        Err(CommitError::Unknown(error)) => Err(RunError::Store(error)),
    }
}
