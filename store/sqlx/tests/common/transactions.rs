//! What an outcome in its effect's own transaction must do. Each file of behaviours about it is over a database with [`Effects`],
//! and [`transactions_tests`] makes tests of all of them.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use idempotency::faults::{Fault, FaultyStore, Op};
use idempotency::transaction::{self, BeginError, CommitError, Fate, Opening, TransactionState, TransactionalStore};
use idempotency::{
    Answer, Claimed, Engine, Fingerprint, Held, Key, Life, Nonce, Operation, Outcome, RecordId, Recovery, ScopeId,
    Settings, State, Store, Windows,
};
use tokio::time::{sleep, timeout};

use super::Database;

/// Of no attempt.
pub(crate) fn opening() -> Opening {
    Opening { limit: Duration::from_secs(30), nonce: Nonce::random() }
}

/// A database with effects.
pub(crate) trait Effects: Database<Store: TransactionalStore + Debug> {
    /// Whether others can write while a transaction is open.
    const MANY_WRITERS: bool;
    /// Statements that make a table `effects` with a text `name`, and what else the methods need.
    const TABLES: &str;

    fn effect(transaction: &mut Transaction<Self>, name: &str) -> impl Future<Output = ()> + Send;
    /// Writes an effect within a savepoint, and commits that.
    fn effect_in_savepoint(transaction: &mut Transaction<Self>, name: &str) -> impl Future<Output = ()> + Send;
    /// Meets an error after which the database has given the transaction up, and goes on as if nothing had been.
    fn swallow_error(&self, transaction: &mut Transaction<Self>) -> impl Future<Output = ()> + Send;
    /// Writes what only COMMIT refuses.
    fn promise(transaction: &mut Transaction<Self>) -> impl Future<Output = ()> + Send;

    /// With the store's tables and those of the effects.
    fn with_effects() -> impl Future<Output = Self> + Send {
        async {
            let database = Self::migrated().await;
            database.execute(Self::TABLES).await;
            database
        }
    }

    /// How many effects of this name are there for everybody.
    fn effects(&self, name: &str) -> impl Future<Output = u32> + Send {
        let count = format!("SELECT CAST(count(*) AS CHAR(20)) FROM effects WHERE name = '{name}'");
        async move { self.texts(&count).await[0].trim().parse().unwrap() }
    }
}

pub(crate) type Transaction<H> = <<H as Database>::Store as TransactionalStore>::Transaction;
pub(crate) type Faulty<H> = FaultyStore<<H as Database>::Store>;

/// Longer than any lease of these tests.
pub(crate) const LEASE_OVER: Duration = Duration::from_secs(31);

pub(crate) struct Bench<H: Effects> {
    pub(crate) database: H,
    pub(crate) store: Faulty<H>,
    pub(crate) engine: Engine<Faulty<H>>,
}

impl<H: Effects> Bench<H> {
    /// Patient: nothing is given up because the machine is slow.
    pub(crate) async fn new() -> Self {
        Self::with(settings().store_timeout(Duration::from_secs(20)).unwrap()).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let database = H::with_effects().await;
        let store = FaultyStore::new(database.store().await);
        let engine = Engine::new(store.clone(), settings);
        Self { database, store, engine }
    }

    pub(crate) async fn claim(&self, key: &str) -> Held<Faulty<H>> {
        match self.engine.claim(&operation(key)).await.unwrap() {
            Answer::Run(held) => held,
            Answer::DoNot(claimed) => panic!("not granted: {claimed:?}"),
        }
    }

    pub(crate) async fn try_begin(&self, held: &Held<Faulty<H>>) -> Result<Transaction<H>, BeginError> {
        transaction::begin(&self.store, held.attempt(), async |opening| self.store.open_transaction(opening).await)
            .await
    }

    /// Begins, and writes an effect.
    pub(crate) async fn begin(&self, held: &Held<Faulty<H>>) -> Transaction<H> {
        let mut transaction = self.try_begin(held).await.unwrap();
        H::effect(&mut transaction, held.attempt().key().as_str()).await;
        transaction
    }

    /// The same without asking whether the attempt may.
    pub(crate) async fn begin_regardless(&self, held: &Held<Faulty<H>>) -> Transaction<H> {
        let opening = Opening { limit: LEASE_OVER, nonce: held.attempt().holder().nonce };
        let mut transaction = self.store.open_transaction(opening).await.unwrap();
        H::effect(&mut transaction, held.attempt().key().as_str()).await;
        transaction
    }

    pub(crate) async fn commit(&self, held: &Held<Faulty<H>>, transaction: Transaction<H>) -> Result<(), CommitError> {
        transaction::commit(&self.store, held.attempt(), transaction, answer_of(held)).await.map(drop)
    }

    pub(crate) async fn state(&self, key: &str) -> State {
        self.store.inner().inspect(&id(key)).await.unwrap().unwrap().state
    }

    pub(crate) async fn until(&self, key: &str, wanted: State) {
        let reached = async {
            while self.state(key).await != wanted {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), reached).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
    }

    /// One effect and its answer, for everybody.
    pub(crate) async fn assert_done(&self, key: &str, by: &Held<Faulty<H>>) {
        assert_eq!(self.database.effects(key).await, 1);
        match self.engine.claim(&operation(key)).await.unwrap() {
            Answer::DoNot(Claimed::Replay { outcome, .. }) => assert_eq!(outcome, answer_of(by)),
            other => panic!("not replayed: {other:?}"),
        }
    }

    /// Nothing stays, and a retry runs.
    pub(crate) async fn assert_free_and_runs(&self, key: &str) {
        assert_eq!(self.database.effects(key).await, 0);
        let retry = self.claim(key).await;
        let transaction = self.begin(&retry).await;
        self.commit(&retry, transaction).await.unwrap();
        self.assert_done(key, &retry).await;
    }
}

pub(crate) fn settings() -> Settings {
    Settings::default().life(Life::new(Recovery::Rerun, Windows::default()))
}

pub(crate) fn operation(key: &str) -> Operation {
    Operation::new(ScopeId::global(), Key::parse(key).unwrap(), Fingerprint::of([key]))
}

pub(crate) fn id(key: &str) -> RecordId {
    operation(key).record_id()
}

/// Each attempt has its own.
fn answer_of<St: Store>(held: &Held<St>) -> Outcome {
    Outcome::new(201, Bytes::from(held.attempt().token().to_string()))
}

pub(crate) async fn effect_and_outcome_come_in_one_commit<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let mut transaction = bench.begin(&held).await;
    assert_eq!(held.attempt().transaction(), TransactionState::Open);
    assert!(bench.store.record_in(&mut transaction, held.attempt().holder(), &answer_of(&held)).await.unwrap());
    assert_eq!((bench.database.effects("k").await, bench.state("k").await), (0, State::InFlight));
    bench.store.commit_transaction(transaction).await.unwrap();
    assert_eq!(bench.state("k").await, State::Completed);
    bench.assert_done("k", &held).await;
}

pub(crate) async fn a_commit_says_that_it_was<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    bench.commit(&held, transaction).await.unwrap();
    assert_eq!(held.attempt().transaction(), TransactionState::Committed);
    assert_eq!(bench.store.calls(Op::Fate), 0);
    bench.assert_done("k", &held).await;
}

pub(crate) async fn a_transaction_that_is_dropped_leaves_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    drop(bench.begin(&held).await);
    assert_eq!(bench.state("k").await, State::InFlight);
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

pub(crate) async fn a_commit_that_nobody_polled_is_rolled_back<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    drop(bench.commit(&held, transaction));
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

pub(crate) async fn a_commit_whose_caller_leaves_is_carried_out<H: Effects>() {
    let bench = Bench::<H>::new().await;
    bench.store.next(Op::RecordIn, Fault::Late(Duration::from_millis(100)));
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(timeout(Duration::from_millis(10), bench.commit(&held, transaction)).await.is_err(), "left");
    assert!(bench.engine.drain(Duration::from_secs(60)).await, "it is waited for");
    bench.assert_done("k", &held).await;
}

/// The attempt itself is gone by then, so nobody else could free its key.
pub(crate) async fn a_commit_that_fails_after_its_caller_left_frees_the_key<H: Effects>() {
    let bench = Bench::<H>::new().await;
    bench.store.next(Op::RecordIn, Fault::Late(Duration::from_millis(100)));
    bench.store.next(Op::CommitTransaction, Fault::Fail);
    bench.store.next(Op::Release, Fault::Fail);
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(timeout(Duration::from_millis(10), bench.commit(&held, transaction)).await.is_err(), "left");
    drop(held);
    bench.until("k", State::Released).await;
    bench.assert_free_and_runs("k").await;
}

/// With its transaction open meanwhile, where others can write then.
pub(crate) async fn a_superseded_attempt_commits_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let stale = bench.claim("k").await;
    let early = if H::MANY_WRITERS { Some(bench.begin(&stale).await) } else { None };
    bench.database.clock().advance(LEASE_OVER);
    let newer = bench.claim("k").await;
    // The newer one is running still, and then it is done.
    let late = match early {
        Some(transaction) => transaction,
        None => bench.begin_regardless(&stale).await,
    };
    assert!(matches!(bench.commit(&stale, late).await, Err(CommitError::Superseded)));
    assert_eq!(stale.attempt().transaction(), TransactionState::Superseded);
    assert!(stale.attempt().is_lost());
    assert_eq!((bench.database.effects("k").await, bench.state("k").await), (0, State::InFlight));

    let transaction = bench.begin(&newer).await;
    bench.commit(&newer, transaction).await.unwrap();
    let late = bench.begin_regardless(&stale).await;
    assert!(matches!(bench.commit(&stale, late).await, Err(CommitError::Superseded)));
    bench.assert_done("k", &newer).await;
}

/// What happens when the count of the rows that the outcome changed is not looked at.
pub(crate) async fn committing_after_no_row_is_a_second_effect<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let stale = bench.claim("k").await;
    bench.database.clock().advance(LEASE_OVER);
    let newer = bench.claim("k").await;
    let transaction = bench.begin(&newer).await;
    bench.commit(&newer, transaction).await.unwrap();
    let mut late = bench.begin_regardless(&stale).await;
    assert!(!bench.store.record_in(&mut late, stale.attempt().holder(), &answer_of(&stale)).await.unwrap());
    bench.store.commit_transaction(late).await.unwrap();
    assert_eq!(bench.database.effects("k").await, 2);
}

pub(crate) async fn a_superseded_attempt_cannot_begin<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let stale = bench.claim("k").await;
    bench.database.clock().advance(LEASE_OVER);
    let newer = bench.claim("k").await;
    assert!(matches!(bench.try_begin(&stale).await, Err(BeginError::Superseded)));
    assert_eq!(stale.attempt().transaction(), TransactionState::Superseded);
    assert_eq!(bench.store.calls(Op::OpenTransaction), 0);
    let transaction = bench.begin(&newer).await;
    bench.commit(&newer, transaction).await.unwrap();
    bench.assert_done("k", &newer).await;
}

/// Nobody took over: late is fine.
pub(crate) async fn a_commit_after_the_lease_is_welcome<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    bench.database.clock().advance(LEASE_OVER);
    bench.commit(&held, transaction).await.unwrap();
    bench.assert_done("k", &held).await;
}

pub(crate) async fn beginning_makes_the_lease_last_for_the_limit<H: Effects>() {
    let limit = idempotency::Lease::new(3 * LEASE_OVER).unwrap();
    let settings = settings().transaction_limit(limit).store_timeout(Duration::from_secs(20)).unwrap();
    let bench = Bench::<H>::with(settings).await;
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(held.attempt().time_left() > 2 * LEASE_OVER);
    bench.database.clock().advance(2 * LEASE_OVER);
    let duplicate = bench.engine.claim(&operation("k")).await.unwrap();
    assert!(matches!(duplicate, Answer::DoNot(Claimed::InFlight { .. })), "{duplicate:?}");
    bench.commit(&held, transaction).await.unwrap();
    bench.assert_done("k", &held).await;
}

pub(crate) async fn an_attempt_commits_once<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let first = bench.begin(&held).await;
    bench.commit(&held, first).await.unwrap();
    assert!(matches!(bench.try_begin(&held).await, Err(BeginError::Superseded)));
    let second = bench.begin_regardless(&held).await;
    assert!(matches!(bench.commit(&held, second).await, Err(CommitError::Superseded)));
    assert_eq!(held.attempt().transaction(), TransactionState::Committed, "what is on record stays");
    bench.assert_done("k", &held).await;
}

pub(crate) async fn an_attempt_may_try_again_after_a_commit_that_failed<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    bench.store.next(Op::CommitTransaction, Fault::Fail);
    let first = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, first).await, Err(CommitError::NotCommitted(_))));
    assert_eq!(held.attempt().transaction(), TransactionState::NotCommitted);
    let second = bench.begin(&held).await;
    bench.commit(&held, second).await.unwrap();
    bench.assert_done("k", &held).await;
}

pub(crate) async fn of_two_open_transactions_the_first_to_commit_counts<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let (one, other) = (bench.begin(&held).await, bench.begin(&held).await);
    let (one, other) = tokio::join!(bench.commit(&held, one), bench.commit(&held, other));
    let refused = one.is_err() as u8 + other.is_err() as u8;
    assert_eq!(refused, 1, "{one:?} and {other:?}");
    assert!([one, other].into_iter().all(|ended| matches!(ended, Ok(()) | Err(CommitError::Superseded))));
    assert_eq!(held.attempt().transaction(), TransactionState::Committed);
    bench.assert_done("k", &held).await;
}

/// What a consumer of several messages at once may do by mistake.
pub(crate) async fn a_transaction_is_committed_with_no_other_attempt<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let (one, other) = (bench.claim("one").await, bench.claim("other").await);
    let of_other = bench.begin(&other).await;
    assert!(matches!(bench.commit(&one, of_other).await, Err(CommitError::NotCommitted(_))));
    assert_eq!(bench.database.effects("other").await, 0, "rolled back");
    assert_eq!((bench.state("one").await, bench.state("other").await), (State::InFlight, State::InFlight));
    for held in [one, other] {
        let transaction = bench.begin(&held).await;
        bench.commit(&held, transaction).await.unwrap();
        bench.assert_done(held.attempt().key().as_str(), &held).await;
    }
}

pub(crate) async fn a_savepoints_commit_commits_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let mut transaction = bench.try_begin(&held).await.unwrap();
    H::effect_in_savepoint(&mut transaction, "k").await;
    assert_eq!(bench.database.effects("k").await, 0);
    drop(transaction);
    assert_eq!(bench.database.effects("k").await, 0);

    let mut transaction = bench.try_begin(&held).await.unwrap();
    H::effect_in_savepoint(&mut transaction, "k").await;
    bench.commit(&held, transaction).await.unwrap();
    bench.assert_done("k", &held).await;
}

/// What is written after such an error would be an outcome without its effect.
pub(crate) async fn case_58_a_swallowed_error_leaves_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let mut transaction = bench.begin(&held).await;
    bench.database.swallow_error(&mut transaction).await;
    let committed = bench.commit(&held, transaction).await;
    assert!(matches!(committed, Err(CommitError::NotCommitted(_))), "{committed:?}");
    assert_eq!(bench.state("k").await, State::InFlight);
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

pub(crate) async fn what_commit_refuses_leaves_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let mut transaction = bench.begin(&held).await;
    H::promise(&mut transaction).await;
    let committed = bench.commit(&held, transaction).await;
    assert!(matches!(committed, Err(CommitError::NotCommitted(_))), "{committed:?}");
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

pub(crate) async fn fate_waits_for_the_transaction_that_has_the_row<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let holder = held.attempt().holder();
    let mut transaction = bench.begin(&held).await;
    assert!(bench.store.record_in(&mut transaction, holder, &answer_of(&held)).await.unwrap());
    let mut fate = pin!(bench.store.fate(holder));
    assert!(timeout(Duration::from_millis(300), &mut fate).await.is_err(), "it waits");
    // The variant that looks right: it says that nothing was committed, and then it is.
    assert_eq!(bench.state("k").await, State::InFlight);
    bench.store.commit_transaction(transaction).await.unwrap();
    assert_eq!(fate.await.unwrap(), Fate::Committed);
    bench.assert_done("k", &held).await;
}

pub(crate) async fn fate_tells_the_three_apart<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let held = bench.claim("k").await;
    let holder = *held.attempt().holder();
    let mut transaction = bench.begin(&held).await;
    assert!(bench.store.record_in(&mut transaction, &holder, &answer_of(&held)).await.unwrap());
    drop(transaction);
    assert_eq!(bench.store.fate(&holder).await.unwrap(), Fate::NotCommitted);
    bench.database.clock().advance(LEASE_OVER);
    assert_eq!(bench.store.fate(&holder).await.unwrap(), Fate::NotCommitted, "nobody took over");
    let newer = bench.claim("k").await;
    assert_eq!(bench.store.fate(&holder).await.unwrap(), Fate::Superseded);
    let transaction = bench.begin(&newer).await;
    bench.commit(&newer, transaction).await.unwrap();
    assert_eq!(bench.store.fate(&holder).await.unwrap(), Fate::Superseded);
    assert_eq!(bench.store.fate(newer.attempt().holder()).await.unwrap(), Fate::Committed);
}

/// Tests of all behaviours of this kind. Those that not every database can have are named with it.
macro_rules! transactions_tests {
    ($database:ty $(, $special:ident)*) => {
        use crate::common::tests_of;
        $(tests_of! { $database, transactions: $special })*
        tests_of! { $database, transactions:
            effect_and_outcome_come_in_one_commit
            a_commit_says_that_it_was
            a_transaction_that_is_dropped_leaves_nothing
            a_commit_that_nobody_polled_is_rolled_back
            a_commit_whose_caller_leaves_is_carried_out
            a_commit_that_fails_after_its_caller_left_frees_the_key
            a_superseded_attempt_commits_nothing
            committing_after_no_row_is_a_second_effect
            a_superseded_attempt_cannot_begin
            a_commit_after_the_lease_is_welcome
            beginning_makes_the_lease_last_for_the_limit
            an_attempt_commits_once
            an_attempt_may_try_again_after_a_commit_that_failed
            a_transaction_is_committed_with_no_other_attempt
            a_savepoints_commit_commits_nothing
            case_58_a_swallowed_error_leaves_nothing
            fate_waits_for_the_transaction_that_has_the_row
            fate_tells_the_three_apart
        }
        tests_of! { $database, lost:
            a_lost_answer_to_a_commit_is_found_out
            a_commit_that_was_lost_with_its_answer_is_found_out
            what_cannot_be_found_out_yet_is_found_out_later
            what_can_never_be_read_is_not_asked_for_for_ever
            a_commit_that_was_lost_is_given_up_in_the_background
            a_commit_that_was_lost_leaves_its_key_in_doubt_after_a_call
            under_hold_it_is_found_out_however_long_it_takes
            a_commit_that_never_answers_is_bounded_by_the_lease
            case_38_a_crash_before_the_effect_and_one_before_the_commit_run_again
            case_39_killed_at_any_moment_there_is_one_effect
        }
        tests_of! { $database, run_in:
            a_duplicate_gets_the_recorded_value
            an_error_rolls_back_and_frees_the_key
            a_panic_rolls_back_and_frees_the_key
            a_superseded_run_answers_with_the_newer_value
            a_run_whose_lease_ended_before_it_began_leaves_its_key_free
            a_value_that_cannot_be_written_counts_as_executed
            a_transaction_that_cannot_be_begun_frees_the_key
            a_commit_that_failed_frees_the_key
            a_run_that_is_dropped_leaves_nothing
        }
    };
}
pub(crate) use transactions_tests;
