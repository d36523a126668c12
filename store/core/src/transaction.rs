//! An outcome in its effect's own transaction: both are there after one commit, or neither is.
//!
//! For effects that are rows of the database that also is the store. What the stores and [`run_in`](crate::run_in) share is here;
//! a handler uses its store's own `begin` and `commit`. The rules, each of which is a double effect when it is dropped:
//!
//! 1. Nothing renews the lease once the transaction has begun: a renewal after its snapshot makes a commit at REPEATABLE READ
//!    and above fail. Instead the lease is lengthened once, before, to the
//!    [transaction limit](crate::Settings::transaction_limit).
//! 2. The outcome is written last, by an update that only a current holder's record matches.
//! 3. COMMIT is sent only when that update has changed its row, which is seen before it is sent.
//! 4. A commit whose acknowledgement was lost is looked up by a locking read, which waits until the transaction has ended.
//! 5. Whoever was superseded rolls back; the record has the only answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::Instrument as _;

use crate::held::given_up;
use crate::patience::{Pauses, within};
use crate::time::BootInstant;
use crate::{Attempt, Holder, Nonce, Outcome, Recovery, Settled, Store, StoreError, StoreErrorKind, dead_for};

/// A store whose database can hold the effects as well: what it must be able to do for
/// [`begin`], [`commit`] and [`run_in`](crate::run_in).
pub trait TransactionalStore: Store + Clone {
    /// A transaction of its database. Dropped, it is rolled back.
    type Transaction: Send + 'static;

    /// Opens a transaction with the database's usual isolation for effects. Where the server can, one that stands still
    /// for the limit is ended by it.
    fn open_transaction(&self, opening: Opening) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// The nonce of the [`Opening`] that this one was opened with.
    fn opened_for(transaction: &Self::Transaction) -> Nonce;

    /// Writes the outcome in this transaction if the record is still the holder's, in flight or in doubt. False when it is
    /// not: then nothing may be committed.
    fn record_in(
        &self,
        transaction: &mut Self::Transaction,
        holder: &Holder,
        outcome: &Outcome,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Commits.
    fn commit_transaction(
        &self,
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), CommitFailure>> + Send;

    /// Rolls back, as far as the connection still works.
    fn roll_back(&self, transaction: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// What became of the holder's commit, by a read that waits for the end of a transaction that has the record's row.
    fn fate(&self, holder: &Holder) -> impl Future<Output = Result<Fate, StoreError>> + Send;
}

/// What a transaction is opened with.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// For how long it may stand still.
    pub limit: Duration,
    /// The attempt's nonce: with no other one it is committed.
    pub nonce: Nonce,
}

/// How a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitFailure {
    /// For certain nothing was committed.
    #[error("the transaction was not committed")]
    NotCommitted(#[source] StoreError),
    /// The answer was lost.
    #[error("the answer to the commit was lost")]
    Unknown(#[source] StoreError),
}

/// What became of a commit whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Effect and outcome are there.
    Committed,
    /// Nothing is there, and the record is still the holder's.
    NotCommitted,
    /// Nothing is there, and the record is somebody else's by now.
    Superseded,
}

/// How far an attempt's transaction came, as whoever settles the attempt must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TransactionState {
    /// None was begun.
    None,
    /// Begun and not committed. Once its handler has ended it is rolled back.
    Open,
    /// Being committed, or nobody knows yet whether it was.
    Unknown,
    /// Effect and outcome are on record.
    Committed,
    /// For certain nothing was committed.
    NotCommitted,
    /// Somebody newer was there first; nothing was committed.
    Superseded,
    /// None could be begun, so nothing of one is there, whatever else the handler did.
    NotBegun,
}

impl TransactionState {
    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Open,
            3 => Self::Committed,
            4 => Self::NotCommitted,
            5 => Self::Superseded,
            6 => Self::NotBegun,
            _ => Self::Unknown,
        }
    }
}

/// An answer that a transaction can record: an HTTP response in `tower-idempotency`, or an [`Outcome`].
pub trait Recordable {
    /// What is recorded of it.
    fn outcome(&self, attempt: &Attempt) -> Outcome;

    /// The same once it is on record. An answer that others are to tell from one that is not says so in itself.
    #[must_use]
    fn on_record(self) -> Self
    where
        Self: Sized,
    {
        self
    }
}

impl Recordable for Outcome {
    fn outcome(&self, _: &Attempt) -> Outcome {
        self.clone()
    }
}

/// Why there is no transaction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// Somebody newer was there first, the lease is over, or this attempt's outcome is on record already.
    #[error("the attempt was superseded")]
    Superseded,
    /// The store could not say, or it is not known yet what became of this attempt's last commit.
    #[error("the store could not begin a transaction")]
    Store(#[from] StoreError),
}

/// Why a transaction was not committed. Whoever settles the attempt, the layer or [`run_in`](crate::run_in), knows what to make of it: a
/// handler returns an error, and what it says does not matter unless it is [`NotCommitted`](Self::NotCommitted).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Somebody newer was there first: nothing of the effect stays, and what is on record is the only answer.
    #[error("the attempt was superseded")]
    Superseded,
    /// For certain nothing was committed: a serialisation failure, a deadlock, a constraint. The key is free again.
    #[error("the transaction was not committed")]
    NotCommitted(#[source] StoreError),
    /// The answer to the commit was lost and it could not be found out yet. It goes on being found out in the background, under
    /// `Rerun` until the lease is over.
    #[error("it is not known yet whether the transaction was committed")]
    Unknown(#[source] StoreError),
}

/// Begins the transaction of an attempt: stops its renewal, lengthens its lease to the transaction limit, and opens it with
/// `open`.
///
/// # Errors
/// [`BeginError`]. Nothing was begun; the lease may have been lengthened, and is not renewed any more.
///
/// # Cancel safety
/// Dropped, the lease may have been lengthened and is not renewed any more.
pub async fn begin<St: Store, T>(
    store: &St,
    attempt: &Attempt,
    open: impl AsyncFnOnce(Opening) -> Result<T, StoreError>,
) -> Result<T, BeginError> {
    attempt.stop_renewal().await;
    match attempt.transaction() {
        TransactionState::Committed => return Err(BeginError::Superseded),
        TransactionState::Unknown => {
            return Err(StoreError::new(StoreErrorKind::Busy, "the last commit is still being found out").into());
        }
        // Of another one, which stays as it is whatever becomes of this.
        TransactionState::Open => {}
        // Until it is: whoever drops this may go another way.
        _ => attempt.set_transaction(TransactionState::NotBegun),
    }
    let limit = attempt.transaction_limit();
    let asked = BootInstant::now();
    match within(attempt.store_timeout(), store.renew(attempt.holder(), limit)).await? {
        Settled::Applied | Settled::AlreadyApplied => attempt.extend(asked, limit.length()),
        Settled::Superseded => {
            attempt.lose();
            attempt.set_transaction(TransactionState::Superseded);
            return Err(BeginError::Superseded);
        }
    }
    // A server that does not answer is waited for until the lease is over: nothing could be committed after that.
    let opening = Opening { limit: limit.length(), nonce: attempt.holder().nonce };
    let transaction = within(attempt.patience(), open(opening)).await?;
    attempt.set_transaction(TransactionState::Open);
    Ok(transaction)
}

/// Records `answer` in the attempt's transaction and commits both.
///
/// # Errors
/// [`CommitError`]. Only after [`CommitError::Unknown`] may the effect be there. A transaction that was begun for another attempt is
/// [not committed](CommitError::NotCommitted).
///
/// # Cancel safety
/// Runs in a task of its own: dropped before it was polled, the transaction is rolled back; later, it is carried out whole.
pub async fn commit<St: TransactionalStore, R: Recordable>(
    store: &St,
    attempt: &Attempt,
    transaction: St::Transaction,
    answer: R,
) -> Result<R, CommitError> {
    if St::opened_for(&transaction) != attempt.holder().nonce {
        roll_back(store, attempt, transaction).await;
        return Err(CommitError::NotCommitted(StoreError::new(StoreErrorKind::Refused, "begun for another attempt")));
    }
    let outcome = answer.outcome(attempt);
    attempt.set_outcome_size(outcome.size());
    attempt.set_transaction(TransactionState::Unknown);
    let (tell, told) = oneshot::channel();
    let commit = commit_and_find_out(store.clone(), attempt.clone(), transaction, outcome, tell);
    attempt.tracker().spawn(commit.in_current_span());
    // It ends without a word only when its runtime does.
    told.await.unwrap_or_else(|_| Err(CommitError::Unknown(StoreError::timeout()))).map(|()| answer.on_record())
}

/// Rolls back. What cannot be done in time is done by dropping it.
pub(crate) async fn roll_back<St: TransactionalStore>(store: &St, attempt: &Attempt, transaction: St::Transaction) {
    let _ = timeout(attempt.store_timeout(), store.roll_back(transaction)).await;
}

type Tell = oneshot::Sender<Result<(), CommitError>>;

async fn commit_and_find_out<St: TransactionalStore>(
    store: St,
    attempt: Attempt,
    transaction: St::Transaction,
    outcome: Outcome,
    tell: Tell,
) {
    match commit_once(&store, &attempt, transaction, &outcome).await {
        Err(CommitError::Unknown(lost)) => {
            tracing::warn!(?attempt, error = &lost as &dyn std::error::Error, "the answer to a commit was lost");
            metrics::counter!("idempotency_commits_unknown_total").increment(1);
            find_out(&store, &attempt, lost, tell).await;
        }
        committed => settle(&store, &attempt, committed, Some(tell)).await,
    }
}

/// Tells whoever waits. When nobody does, nobody settles an attempt that committed nothing: so its key is freed here, or in doubt where
/// it may not be.
async fn settle<St: Store>(store: &St, attempt: &Attempt, committed: Result<(), CommitError>, waiting: Option<Tell>) {
    let state = match &committed {
        Ok(()) => TransactionState::Committed,
        Err(CommitError::Superseded) => TransactionState::Superseded,
        Err(_) => TransactionState::NotCommitted,
    };
    attempt.set_transaction(state);
    if state == TransactionState::Superseded {
        attempt.lose();
        tracing::warn!(?attempt, "superseded: its transaction is rolled back");
        metrics::counter!("idempotency_superseded_total").increment(1);
    }
    let told = waiting.is_some_and(|waiting| waiting.send(committed).is_ok());
    if told || state != TransactionState::NotCommitted {
        return;
    }
    let mut pauses = Pauses::in_background();
    let store_timeout = attempt.store_timeout();
    let once = async || match attempt.may_release() {
        true => store.release(attempt.holder(), dead_for(store_timeout)).await,
        false => store.mark_in_doubt(attempt.holder(), None).await,
    };
    while let Err(error) = within(store_timeout, once()).await {
        if error.is_final() {
            return given_up(attempt, &error);
        }
        if somebody_takes_over(attempt) {
            return;
        }
        pauses.pause_after(&error).await;
    }
}

/// Whether a duplicate may run by now, which finds out by its claim. Under `Hold` nobody but this process frees the key.
fn somebody_takes_over(attempt: &Attempt) -> bool {
    attempt.is_lost() && attempt.recovery() == Recovery::Rerun
}

async fn commit_once<St: TransactionalStore>(
    store: &St,
    attempt: &Attempt,
    mut transaction: St::Transaction,
    outcome: &Outcome,
) -> Result<(), CommitError> {
    // A server that does not answer is waited for until the lease is over: from then on it is somebody else's.
    match within(attempt.patience(), store.record_in(&mut transaction, attempt.holder(), outcome)).await {
        Ok(true) => {}
        Ok(false) => {
            roll_back(store, attempt, transaction).await;
            return Err(CommitError::Superseded);
        }
        // COMMIT was not sent, so it is certain.
        Err(error) => {
            roll_back(store, attempt, transaction).await;
            return Err(CommitError::NotCommitted(error));
        }
    }
    match timeout(attempt.patience(), store.commit_transaction(transaction)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(CommitFailure::NotCommitted(error))) => Err(CommitError::NotCommitted(error)),
        Ok(Err(CommitFailure::Unknown(error))) => Err(CommitError::Unknown(error)),
        Err(_) => Err(CommitError::Unknown(StoreError::timeout())),
    }
}

/// Asks what became of a commit until the store answers or somebody else may run. Whoever waits for it is told within twice the
/// store timeout; what is found out later settles the record.
async fn find_out<St: TransactionalStore>(store: &St, attempt: &Attempt, lost: StoreError, tell: Tell) {
    let store_timeout = attempt.store_timeout();
    let patience = BootInstant::now().after(store_timeout.saturating_mul(2));
    let mut waiting = Some(tell);
    let mut lost = Some(lost);
    let mut pauses = Pauses::in_background();
    loop {
        let error = match within(store_timeout, store.fate(attempt.holder())).await {
            Ok(fate) => {
                let found = match fate {
                    Fate::Committed => Ok(()),
                    Fate::Superseded => Err(CommitError::Superseded),
                    Fate::NotCommitted => {
                        Err(CommitError::NotCommitted(lost.take().unwrap_or_else(StoreError::timeout)))
                    }
                };
                return settle(store, attempt, found, waiting).await;
            }
            Err(error) => error,
        };
        if (error.is_final() || BootInstant::now() >= patience)
            && let Some(tell) = waiting.take()
        {
            let error = lost.take().unwrap_or_else(StoreError::timeout);
            let _ = tell.send(Err(CommitError::Unknown(error)));
        }
        if error.is_final() {
            return given_up(attempt, &error);
        }
        if somebody_takes_over(attempt) {
            return;
        }
        pauses.pause_after(&error).await;
    }
}

/// What the layer that made an attempt wants to be known where its answer is recorded.
pub(crate) type Attached = Arc<dyn std::any::Any + Send + Sync>;
