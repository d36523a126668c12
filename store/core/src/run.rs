//! The same protection for a plain function: a queue consumer, a cron job.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    Answer, Attempt, Claimed, Doubt, Engine, Held, Operation, Outcome, Recorded, Recovery, Store, StoreError, Tombstone,
};

/// Runs `work` once for `operation` and gives a duplicate the recorded value.
///
/// What `work` returns decides what is recorded: `Ok` completes; [`WorkError::NothingDone`] frees the key;
/// [`WorkError::Unknown`], which `?` makes of any error, is in doubt under [`Recovery::Hold`] and frees the key under
/// [`Recovery::Rerun`], as a panic does.
///
/// ```
/// use idempotency::{Engine, Fingerprint, Key, Operation, ScopeId, Settings, WorkError, run};
/// use idempotency_memory::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::new(MemoryStore::new(), Settings::default());
/// let message = Operation::new(ScopeId::global(), Key::parse("message-7")?, Fingerprint::of(["ship 42"]));
///
/// let first = run(&engine, &message, async |_attempt| Ok::<_, WorkError<std::io::Error>>(42)).await?;
/// assert_eq!((first.value, first.replayed), (42, false));
///
/// let again = run(&engine, &message, async |_attempt| -> Result<i32, WorkError<std::io::Error>> {
///     unreachable!("it ran already")
/// });
/// let again = again.await?;
/// assert_eq!((again.value, again.replayed), (42, true));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`RunError`] says why there is no value: the work's own error, or why it did not run.
///
/// # Cancel safety
/// Dropped before the store answered: the claim is abandoned, nothing ran. Dropped while `work` runs: `work` is dropped with
/// it, and the claim is left to its lease, since nobody knows how far it came. Spawn it if that must not happen.
pub async fn run<St, T, E, W>(engine: &Engine<St>, operation: &Operation, work: W) -> Result<Ran<T>, RunError<E>>
where
    St: Store,
    T: Serialize + DeserializeOwned,
    W: AsyncFnOnce(Attempt) -> Result<T, WorkError<E>>,
{
    let held = match engine.claim(operation).await? {
        Answer::Run(held) => held,
        Answer::DoNot(claimed) => return replay(claimed),
    };
    let recovery = held.recovery();
    let result = match AssertUnwindSafe(async { work(held.attempt().clone()).await }).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => {
            after_unknown(held).await;
            std::panic::resume_unwind(panic);
        }
    };
    let value = match result {
        Ok(value) => value,
        Err(WorkError::NothingDone(error)) => {
            held.release().await;
            return Err(RunError::Work(WorkError::NothingDone(error)));
        }
        Err(WorkError::Unknown(error)) => {
            after_unknown(held).await;
            return Err(RunError::Work(WorkError::Unknown(error)));
        }
    };
    let outcome = match recorded(&value) {
        Ok(outcome) => outcome,
        Err(error) => {
            held.complete(Outcome::not_kept(0)).await;
            return Err(RunError::Value(error));
        }
    };
    match held.complete(outcome).await {
        Recorded::Applied => Ok(Ran { value, replayed: false }),
        Recorded::Pending(_) if recovery == Recovery::Hold => Ok(Ran { value, replayed: false }),
        Recorded::Pending(error) => Err(RunError::Store(error)),
        Recorded::Superseded => replay(engine.look(operation).await?),
    }
}

async fn after_unknown<St: Store>(held: Held<St>) {
    match held.recovery() {
        Recovery::Hold => held.mark_in_doubt(None).await,
        Recovery::Rerun => held.release().await,
    };
}

pub(crate) fn replay<T: DeserializeOwned, E>(claimed: Claimed) -> Result<Ran<T>, RunError<E>> {
    Err(match claimed {
        Claimed::Replay { outcome, .. } => {
            let payload = outcome.payload().map_or(&[][..], |p| p);
            return decode(payload).map(|value| Ran { value, replayed: true });
        }
        Claimed::Executed(tombstone) => RunError::Executed(tombstone),
        Claimed::InDoubt(doubt) => RunError::InDoubt(doubt),
        Claimed::Mismatch => RunError::Mismatch,
        Claimed::Unreadable => RunError::Unreadable,
        Claimed::TooOld => RunError::TooOld,
        Claimed::FromTheFuture => RunError::FromTheFuture,
        Claimed::Full => RunError::Full,
        Claimed::InFlight { lease_left } => RunError::InFlight { lease_left },
        // The engine keeps these to itself; if one came through, asking again is right.
        Claimed::Granted(_) | Claimed::Refused => RunError::InFlight { lease_left: Duration::ZERO },
    })
}

/// A value as [`run`] records it, for whoever [resolves](Store::resolve) a record in doubt by what is now known to have
/// happened: duplicates then get this value.
///
/// # Errors
/// When the value cannot be written as JSON.
pub fn recorded<T: Serialize>(value: &T) -> Result<Outcome, serde_json::Error> {
    Ok(Outcome::new(0, encode(value)?))
}

/// The format version in front of a recorded value: JSON follows.
const JSON: u8 = 1;

fn encode<T: Serialize>(value: &T) -> Result<Bytes, serde_json::Error> {
    let mut payload = vec![JSON];
    serde_json::to_writer(&mut payload, value)?;
    Ok(payload.into())
}

fn decode<T: DeserializeOwned, E>(payload: &[u8]) -> Result<T, RunError<E>> {
    match payload.split_first() {
        Some((&JSON, json)) => serde_json::from_slice(json).map_err(RunError::Value),
        _ => Err(RunError::Unreadable),
    }
}

/// The value of an operation, and whether it was made now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran<T> {
    /// The value.
    pub value: T,
    /// It comes from the record; `work` did not run.
    pub replayed: bool,
}

/// How work failed: what is known about its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkError<E> {
    /// For certain nothing was applied: the key is free again.
    NothingDone(E),
    /// The effect may have happened.
    Unknown(E),
}

impl<E> From<E> for WorkError<E> {
    fn from(error: E) -> Self {
        Self::Unknown(error)
    }
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The work failed.
    #[error("the work failed")]
    Work(WorkError<E>),
    /// It is running elsewhere; ask again later.
    #[error("the operation is running elsewhere")]
    InFlight {
        /// Until its lease ends, if nobody renews it.
        lease_left: Duration,
    },
    /// An attempt ended and nobody knows whether its effect happened.
    #[error("nobody knows whether attempt {} had its effect", .0.attempt)]
    InDoubt(Doubt),
    /// It was executed; its value is no longer kept.
    #[error("the operation was executed; its value is no longer kept")]
    Executed(Tombstone),
    /// The key stands for another operation.
    #[error("the key stands for another operation")]
    Mismatch,
    /// The record was written by a release that this one cannot read.
    #[error("the record cannot be read by this release")]
    Unreadable,
    /// The key is older than is remembered.
    #[error("the key is older than is remembered")]
    TooOld,
    /// The key is dated too far ahead.
    #[error("the key is dated too far ahead")]
    FromTheFuture,
    /// The store has no room.
    #[error("the store has no room")]
    Full,
    /// The value could not be written to, or read from, its record.
    #[error("the value could not be written or read as JSON")]
    Value(#[source] serde_json::Error),
    /// The store could not say, or the value is not recorded yet.
    #[error("the store could not say")]
    Store(#[from] StoreError),
}
