//! Plain functions whose effect is in the store's database.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt as _;
use idempotency::faults::{Fault, Op};
use idempotency::{Life, Ran, Recovery, RunError, State, StoreError, Windows, recorded, run_in};
use tokio::time::timeout;

use super::transactions::{Bench, Effects, LEASE_OVER, operation, settings};

async fn run<H: Effects>(bench: &Bench<H>) -> Result<Ran<u32>, RunError<StoreError>> {
    let operation = operation("k");
    let ran = run_in(&bench.engine, &operation, async |_, transaction| {
        H::effect(transaction, "k").await;
        Ok(7)
    });
    ran.await
}

/// It ran, and a duplicate is told.
async fn assert_runs_once<H: Effects>(bench: &Bench<H>) {
    assert_eq!(bench.database.effects("k").await, 0);
    assert_eq!(run(bench).await.unwrap(), Ran { value: 7, replayed: false });
    assert_eq!(run(bench).await.unwrap(), Ran { value: 7, replayed: true });
    assert_eq!(bench.database.effects("k").await, 1);
}

pub(crate) async fn a_duplicate_gets_the_recorded_value<H: Effects>() {
    let bench = Bench::<H>::new().await;
    assert_runs_once(&bench).await;
    let other = idempotency::Operation { fingerprint: operation("other").fingerprint, ..operation("k") };
    let ran = run_in(&bench.engine, &other, async |_, _| Ok::<_, StoreError>(8)).await;
    assert!(matches!(ran, Err(RunError::Mismatch)));
}

pub(crate) async fn an_error_rolls_back_and_frees_the_key<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let operation = operation("k");
    let ran = run_in(&bench.engine, &operation, async |_, transaction| {
        H::effect(transaction, "k").await;
        Err::<u32, _>("no")
    });
    assert!(matches!(ran.await, Err(RunError::Work(idempotency::WorkError::NothingDone("no")))));
    assert_runs_once(&bench).await;
}

pub(crate) async fn a_panic_rolls_back_and_frees_the_key<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let operation = operation("k");
    let ran = run_in(&bench.engine, &operation, async |_, transaction| -> Result<u32, StoreError> {
        H::effect(transaction, "k").await;
        panic!("no");
    });
    let panic = std::panic::AssertUnwindSafe(ran).catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"no"), "passed on");
    assert_runs_once(&bench).await;
}

pub(crate) async fn a_superseded_run_answers_with_the_newer_value<H: Effects>() {
    // Before it begins: its renewal comes late.
    let bench = Bench::<H>::new().await;
    bench.store.next(Op::Renew, Fault::Late(Duration::from_millis(300)));
    let operation = operation("k");
    let late = run(&bench);
    let newer = async {
        while bench.store.calls(Op::Renew) == 0 {
            tokio::task::yield_now().await;
        }
        bench.database.clock().advance(LEASE_OVER);
        let newer = bench.claim("k").await;
        newer.complete(recorded(&8).unwrap()).await;
    };
    let (late, ()) = tokio::join!(late, newer);
    assert_eq!(late.unwrap(), Ran { value: 8, replayed: true });
    assert_eq!(bench.database.effects("k").await, 0);
    if !H::MANY_WRITERS {
        return;
    }
    // In the middle of its transaction.
    let bench = Bench::<H>::new().await;
    let late = run_in(&bench.engine, &operation, async |_, transaction| {
        H::effect(transaction, "k").await;
        bench.database.clock().advance(LEASE_OVER);
        run(&bench).await.unwrap();
        Ok::<_, StoreError>(8)
    });
    assert_eq!(late.await.unwrap(), Ran { value: 7, replayed: true });
    assert_eq!(bench.database.effects("k").await, 1);
}

/// Nobody took over, and nothing ran.
pub(crate) async fn a_run_whose_lease_ended_before_it_began_leaves_its_key_free<H: Effects>() {
    let hold = settings().life(Life::new(Recovery::Hold, Windows::default()));
    let bench = Bench::<H>::with(hold).await;
    bench.store.next(Op::Renew, Fault::Late(Duration::from_millis(300)));
    let late = run(&bench);
    let meanwhile = async {
        while bench.store.calls(Op::Renew) == 0 {
            tokio::task::yield_now().await;
        }
        bench.database.clock().advance(LEASE_OVER);
    };
    let (late, ()) = tokio::join!(late, meanwhile);
    assert!(late.is_err(), "{late:?}");
    assert_eq!(bench.state("k").await, State::Released);
    assert_runs_once(&bench).await;
}

pub(crate) async fn a_value_that_cannot_be_written_counts_as_executed<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let operation = operation("k");
    let ran = run_in(&bench.engine, &operation, async |_, transaction| {
        H::effect(transaction, "k").await;
        // JSON has no such key.
        Ok::<_, StoreError>(HashMap::from([((1, 2), 3)]))
    });
    assert!(matches!(ran.await.map(drop), Err(RunError::Value(_))));
    assert!(matches!(run(&bench).await, Err(RunError::Executed(_))));
    assert_eq!(bench.database.effects("k").await, 1);
}

pub(crate) async fn a_transaction_that_cannot_be_begun_frees_the_key<H: Effects>() {
    for op in [Op::Renew, Op::OpenTransaction] {
        let bench = Bench::<H>::new().await;
        bench.store.next(op, Fault::Fail);
        assert!(matches!(run(&bench).await, Err(RunError::Store(_))), "{op:?}");
        assert_runs_once(&bench).await;
    }
}

pub(crate) async fn a_commit_that_failed_frees_the_key<H: Effects>() {
    for (op, fault) in [
        (Op::RecordIn, Fault::Fail),
        (Op::RecordIn, Fault::LoseReply),
        (Op::CommitTransaction, Fault::Fail),
        (Op::CommitTransaction, Fault::Disconnect),
    ] {
        let bench = Bench::<H>::new().await;
        bench.store.next(op, fault);
        assert!(matches!(run(&bench).await, Err(RunError::Store(_))), "{op:?} {fault:?}");
        assert_runs_once(&bench).await;
    }
}

/// Its claim is left to its lease.
pub(crate) async fn a_run_that_is_dropped_leaves_nothing<H: Effects>() {
    let bench = Bench::<H>::new().await;
    let (begun, begins) = tokio::sync::oneshot::channel();
    let operation = operation("k");
    let endless = run_in(&bench.engine, &operation, async |_, transaction| {
        H::effect(transaction, "k").await;
        let _ = begun.send(());
        std::future::pending::<Result<u32, StoreError>>().await
    });
    tokio::select! {
        _ = endless => unreachable!("it does not end"),
        begun = begins => begun.unwrap(),
    }
    let ran = timeout(Duration::from_secs(60), run(&bench)).await.unwrap();
    assert!(matches!(ran, Err(RunError::InFlight { .. })), "{ran:?}");
    bench.database.clock().advance(LEASE_OVER);
    assert_runs_once(&bench).await;
}
