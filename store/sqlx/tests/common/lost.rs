//! Commits whose answer is lost, and processes that end around one.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use idempotency::faults::{Fault, Op};
use idempotency::outbound::{CallEnd, Guard, Policy, Provider, Step, Steps};
use idempotency::transaction::{BeginError, CommitError, TransactionState, TransactionalStore as _};
use idempotency::{
    Engine, Fingerprint, Lease, Life, Outcome, Ran, Recovery, RunError, Settings, State, StoreErrorKind, Windows,
    run_in,
};
use tokio::runtime;
use tokio::time::{sleep, timeout};

use super::transactions::{Bench, Effects, LEASE_OVER, operation, settings};

pub(crate) async fn a_lost_answer_to_a_commit_is_found_out<H: Effects>() {
    for lost in [Fault::LoseReply, Fault::LateReply(Duration::ZERO)] {
        let bench = Bench::<H>::new().await;
        bench.store.next(Op::CommitTransaction, lost);
        bench.store.next(Op::Fate, Fault::Fail);
        let held = bench.claim("k").await;
        let transaction = bench.begin(&held).await;
        bench.commit(&held, transaction).await.unwrap();
        assert_eq!(held.attempt().transaction(), TransactionState::Committed);
        assert_eq!(bench.store.calls(Op::Fate), if lost == Fault::LoseReply { 2 } else { 0 });
        bench.assert_done("k", &held).await;
    }
}

pub(crate) async fn a_commit_that_was_lost_with_its_answer_is_found_out<H: Effects>() {
    let bench = Bench::<H>::new().await;
    bench.store.next(Op::CommitTransaction, Fault::Disconnect);
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::NotCommitted(_))));
    assert_eq!(bench.store.calls(Op::Fate), 1);
    held.release().await;
    bench.assert_free_and_runs("k").await;
}

pub(crate) async fn what_cannot_be_found_out_yet_is_found_out_later<H: Effects>() {
    let bench = Bench::<H>::with(settings()).await;
    bench.store.next(Op::CommitTransaction, Fault::LoseReply);
    bench.store.always(Op::Fate, Fault::Fail);
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::Unknown(_))));
    assert!(matches!(bench.try_begin(&held).await, Err(BeginError::Store(_))), "it may have been committed");
    assert_eq!(held.attempt().transaction(), TransactionState::Unknown);
    bench.store.heal();
    assert!(bench.engine.drain(Duration::from_secs(60)).await);
    assert_eq!(held.attempt().transaction(), TransactionState::Committed);
    bench.assert_done("k", &held).await;
}

pub(crate) async fn what_can_never_be_read_is_not_asked_for_for_ever<H: Effects>() {
    let bench = Bench::<H>::with(settings()).await;
    bench.store.next(Op::CommitTransaction, Fault::LoseReply);
    bench.store.next(Op::Fate, Fault::FailAs(StoreErrorKind::Refused));
    bench.store.next(Op::Fate, Fault::FailAs(StoreErrorKind::Unreadable));
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::Unknown(_))));
    assert!(bench.engine.drain(Duration::from_secs(60)).await);
    assert_eq!(bench.store.calls(Op::Fate), 2);
    assert_eq!(held.attempt().transaction(), TransactionState::Unknown);
}

pub(crate) async fn a_commit_that_was_lost_is_given_up_in_the_background<H: Effects>() {
    let bench = Bench::<H>::with(settings()).await;
    bench.store.next(Op::CommitTransaction, Fault::Disconnect);
    bench.store.always(Op::Fate, Fault::Fail);
    let held = bench.claim("k").await;
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::Unknown(_))));
    drop(held);
    bench.store.heal();
    bench.until("k", State::Released).await;
    bench.assert_free_and_runs("k").await;
}

/// A call to an external API that was made before is not rolled back with it.
pub(crate) async fn a_commit_that_was_lost_leaves_its_key_in_doubt_after_a_call<H: Effects<Store: Steps>>() {
    let hold = Settings::default().life(Life::new(Recovery::Hold, Windows::default()));
    let bench = Bench::<H>::with(hold).await;
    let held = bench.claim("k").await;
    let guard =
        Guard::new(bench.store.clone(), Provider::new("bank", Duration::from_secs(1)).unwrap(), Policy::Hold).unwrap();
    let step = Step::new("transfer", Fingerprint::of(["10 EUR"])).unwrap();
    let _ = guard.call(held.attempt(), &step, async |_| CallEnd::Done(Bytes::new())).await.unwrap();
    bench.store.next(Op::CommitTransaction, Fault::Disconnect);
    bench.store.always(Op::Fate, Fault::Fail);
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::Unknown(_))));
    drop(held);
    bench.store.heal();
    assert!(bench.engine.drain(Duration::from_secs(60)).await);
    assert_eq!(bench.state("k").await, State::InDoubt);
}

/// Nobody takes over, so nobody else would ever find out.
pub(crate) async fn under_hold_it_is_found_out_however_long_it_takes<H: Effects>() {
    let hold = short(Settings::default().life(Life::new(Recovery::Hold, Windows::default())));
    let bench = Bench::<H>::with(hold).await;
    bench.store.next(Op::CommitTransaction, Fault::Disconnect);
    bench.store.always(Op::Fate, Fault::Fail);
    let held = bench.claim("k").await;
    let attempt = held.attempt().clone();
    let transaction = bench.begin(&held).await;
    assert!(matches!(bench.commit(&held, transaction).await, Err(CommitError::Unknown(_))));
    drop(held);
    attempt.lost().await;
    bench.database.clock().advance(LEASE_OVER);
    assert_eq!(bench.state("k").await, State::InDoubt);
    let asked = bench.store.calls(Op::Fate);
    let asked_again = async {
        while bench.store.calls(Op::Fate) == asked {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), asked_again).await.expect("it is asked on");
    bench.store.heal();
    bench.until("k", State::Released).await;
    bench.assert_free_and_runs("k").await;
}

/// A lease that ends soon, as the process's own clock tells it.
fn short(settings: Settings) -> Settings {
    let lease = Lease::new(Duration::from_secs(1)).unwrap();
    settings.lease(lease).transaction_limit(lease).without_renewal()
}

pub(crate) async fn a_commit_that_never_answers_is_bounded_by_the_lease<H: Effects>() {
    for op in [Op::RecordIn, Op::CommitTransaction] {
        let bench = Bench::<H>::with(short(settings())).await;
        bench.store.next(op, Fault::Stall);
        let held = bench.claim("k").await;
        let transaction = bench.begin(&held).await;
        let committed = timeout(Duration::from_secs(30), bench.commit(&held, transaction)).await.expect("bounded");
        assert!(matches!(committed, Err(CommitError::NotCommitted(_))), "{op:?}: {committed:?}");
        held.release().await;
        bench.assert_free_and_runs("k").await;
    }
    let bench = Bench::<H>::with(short(settings())).await;
    bench.store.next(Op::OpenTransaction, Fault::Stall);
    let held = bench.claim("k").await;
    let begun = timeout(Duration::from_secs(30), bench.try_begin(&held)).await.expect("bounded");
    assert!(matches!(begun, Err(BeginError::Store(_))));
}

pub(crate) async fn case_38_a_crash_before_the_effect_and_one_before_the_commit_run_again<H: Effects>() {
    let bench = Bench::<H>::new().await;
    drop(bench.claim("before the effect").await);
    let held = bench.claim("before the commit").await;
    let mut transaction = bench.begin(&held).await;
    let outcome = Outcome::new(201, "lost".into());
    assert!(bench.store.record_in(&mut transaction, held.attempt().holder(), &outcome).await.unwrap());
    drop((transaction, held));
    let done = bench.claim("after the commit").await;
    let transaction = bench.begin(&done).await;
    bench.commit(&done, transaction).await.unwrap();

    bench.database.clock().advance(LEASE_OVER);
    bench.assert_free_and_runs("before the effect").await;
    bench.assert_free_and_runs("before the commit").await;
    bench.assert_done("after the commit", &done).await;
}

/// Every kill is the end of a runtime in the middle of a run, a little later each time.
pub(crate) async fn case_39_killed_at_any_moment_there_is_one_effect<H: Effects>() {
    const KILLS: u32 = 100;
    let bench = Bench::<H>::new().await;
    let database = Arc::new(bench.database);
    let took = {
        let begun = Instant::now();
        for n in 0..5 {
            run::<H>(&bench.engine, &format!("measured {n}")).await.unwrap();
        }
        begun.elapsed() / 5
    };
    let (mut before, mut after, mut number) = (0, 0, 0);
    // How late the last kill of a hundred comes. What a run takes changes with what else the machine does.
    let mut latest = took * 3 / 2;
    while number < KILLS || (before.min(after) < 10 && number < 10 * KILLS) {
        let key = format!("{number}");
        run_and_kill(&database, &key, latest * (number % KILLS) / KILLS);
        number += 1;
        if number % KILLS == 0 && after < 10 {
            latest *= 2;
        } else if number % KILLS == 0 && before < 10 {
            latest /= 2;
        }
        database.clock().advance(LEASE_OVER);
        let ran = run::<H>(&bench.engine, &key).await.unwrap();
        *if ran.replayed { &mut after } else { &mut before } += 1;
        assert_eq!(database.effects(&key).await, 1, "killed {after} times after the commit, {before} before");
    }
    assert!(
        before.min(after) >= 10,
        "{before} kills landed before the commit and {after} after it: this proves nothing"
    );
}

/// In a runtime of its own, which ends so long after the run began.
fn run_and_kill<H: Effects>(database: &Arc<H>, key: &str, after: Duration) {
    let process = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (begun, begins) = mpsc::channel();
    let (database, key) = (Arc::clone(database), key.to_owned());
    process.spawn(async move {
        let store = idempotency::faults::FaultyStore::new(database.store().await);
        let engine = Engine::new(store, settings());
        begun.send(()).unwrap();
        let _ = run::<H>(&engine, &key).await;
    });
    begins.recv().unwrap();
    std::thread::sleep(after);
    // Whatever the dead one is at ends here, and not after what the test does next: it could claim at a time that comes later.
    // In a thread: this one is a runtime's.
    std::thread::spawn(|| process.shutdown_timeout(Duration::from_secs(60))).join().unwrap();
}

type Run = Result<Ran<u32>, RunError<std::convert::Infallible>>;

async fn run<H: Effects>(engine: &Engine<super::transactions::Faulty<H>>, key: &str) -> Run {
    let operation = operation(key);
    loop {
        let ran = run_in(engine, &operation, async |_, transaction| {
            H::effect(transaction, key).await;
            Ok(7)
        });
        match ran.await {
            // What the dead one began is still on its way to its end.
            Err(RunError::InFlight { .. } | RunError::Store(_)) => sleep(Duration::from_millis(5)).await,
            ran => return ran,
        }
    }
}
