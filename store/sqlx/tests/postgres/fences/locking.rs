//! Who waits for whom.

use std::time::Duration;

use idempotency_sqlx::fence::{FenceError, Fences};
use sqlx::Executor;

use super::suite::{self, Rig as _, account, fresh, is_superseded, resource};
use super::{Rig, sqlstate};

/// Transactions of one tenure run beside each other, and a new holder waits until they have ended.
#[tokio::test(flavor = "multi_thread")]
async fn verified_transactions_run_in_parallel_and_hold_a_new_holder_up() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    let opened = fences.open_with(&account(), &fresh(33)).await.unwrap().commit().await.unwrap();
    let mut one = fences.verify(&opened).await.unwrap();
    let mut two = fences.verify(&opened).await.unwrap();
    one.execute("UPDATE accounts SET balance = 101 WHERE id = 1").await.unwrap();
    two.execute("UPDATE accounts SET balance = 201 WHERE id = 2").await.unwrap();
    let (resource, newer) = (account(), fresh(34));
    let (answer, ()) = tokio::join!(fences.open_with(&resource, &newer), async {
        rig.until_waiting().await;
        one.commit().await.unwrap();
        rig.until_waiting().await;
        two.commit().await.unwrap();
    });
    answer.unwrap().commit().await.unwrap();
    is_superseded(fences.verify(&opened).await.unwrap_err(), 34);
}

/// The fence before the rows, everywhere: the other order beside it deadlocks.
#[tokio::test(flavor = "multi_thread")]
async fn rows_before_the_fence_deadlock_with_the_fence_before_rows() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    suite::admitted(&fences, &account(), &fresh(33)).await;
    let mut right = fences.open_with(&account(), &fresh(34)).await.unwrap();
    let mut wrong = rig.begin().await;
    wrong.execute("UPDATE accounts SET balance = 0 WHERE id = 1").await.unwrap();
    let fence = "SELECT FROM idempotency_fences WHERE resource = 'account/1' FOR UPDATE";
    let write = "UPDATE accounts SET balance = 1 WHERE id = 1";
    let (theirs, ours) = tokio::join!(
        async {
            let answer = wrong.execute(fence).await;
            wrong.rollback().await.unwrap();
            answer
        },
        async {
            rig.until_waiting().await;
            let answer = right.execute(write).await;
            right.rollback().await;
            answer
        }
    );
    let states: Vec<_> = [theirs, ours].into_iter().filter(Result::is_err).map(sqlstate).collect();
    assert_eq!(states, ["40P01"]);
}

/// A deadlock among openings is tried again: nothing of the caller's has been run.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_among_openings_is_tried_again() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    for name in ["a", "b"] {
        suite::admitted(&fences, &resource(name), &fresh(1)).await;
    }
    run_and_reset(&rig).await;
    let mut wrong = rig.begin().await;
    wrong.execute("SELECT FROM idempotency_fences WHERE resource = 'b' FOR UPDATE").await.unwrap();
    let both = [resource("a"), resource("b")];
    let (opened, theirs) = tokio::join!(fences.open_all(&both), async {
        rig.until_waiting().await;
        let answer = wrong.execute("SELECT FROM idempotency_fences WHERE resource = 'a' FOR UPDATE").await;
        wrong.rollback().await.unwrap();
        answer
    });
    // Whichever of the two the server has chosen.
    drop(theirs);
    opened.unwrap().commit().await.unwrap();
}

async fn run_and_reset(rig: &Rig) {
    rig.run("UPDATE idempotency_fences SET source = 0").await;
}

/// An error breaks a transaction for good, so what may be there already is inserted without one.
#[tokio::test(flavor = "multi_thread")]
async fn a_unique_violation_breaks_the_transaction_and_a_commit_says_so() {
    let rig = Rig::new().await;
    let mut opened = rig.fences().open(&account()).await.unwrap();
    let duplicate = opened.execute("INSERT INTO accounts (id, balance) VALUES (2, 0)").await;
    assert_eq!(sqlstate(duplicate), "23505");
    assert_eq!(sqlstate(opened.execute("SELECT 1").await), "25P02");
    // sqlx's own commit would say that all is well.
    let answer = opened.commit().await.unwrap_err();
    assert!(matches!(answer, FenceError::Poisoned), "{answer:?}");

    let mut plain = rig.begin().await;
    plain.execute("UPDATE accounts SET balance = 0 WHERE id = 1").await.unwrap();
    plain.execute("INSERT INTO accounts (id, balance) VALUES (2, 0)").await.unwrap_err();
    plain.commit().await.unwrap();
    assert_eq!(suite::balance(&rig).await, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_does_nothing_waits_for_the_other_one() {
    let rig = Rig::new().await;
    let insert = "INSERT INTO accounts (id, balance) VALUES (3, 0) ON CONFLICT DO NOTHING";
    let mut one = rig.begin().await;
    assert_eq!(one.execute(insert).await.unwrap().rows_affected(), 1);
    let (changed, ()) = tokio::join!(rig.pool.execute(insert), async {
        rig.until_waiting().await;
        one.commit().await.unwrap();
    });
    assert_eq!(changed.unwrap().rows_affected(), 0);
}

/// A retry of the whole opening is bounded, and what it says then is that others were in the way.
#[tokio::test(flavor = "multi_thread")]
async fn an_opening_does_not_wait_for_ever() {
    let rig = Rig::new().await;
    let fences = rig.fences();
    let holder = fences.open(&account()).await.unwrap();
    let answer = fences.clone().lock_timeout(Duration::from_millis(50)).open(&account()).await.unwrap_err();
    match answer {
        FenceError::Store(error) => assert_eq!(error.kind(), idempotency::StoreErrorKind::Busy),
        answer => panic!("{answer:?}"),
    }
    holder.commit().await.unwrap();
}

/// sqlx rolls back all of the transaction then, and what comes after it is no part of any.
#[tokio::test(flavor = "multi_thread")]
async fn a_savepoint_that_failed_ends_the_transaction_and_the_commit_says_so() {
    let rig = Rig::new().await;
    for fences in [rig.fences(), rig.fences().without_timeline()] {
        let mut opened = fences.open(&account()).await.unwrap();
        opened.execute("SELECT 1 / 0").await.unwrap_err();
        sqlx::Connection::begin(&mut *opened).await.unwrap_err();
        opened.execute("UPDATE accounts SET balance = balance + 1 WHERE id = 1").await.unwrap();
        let answer = opened.commit().await.unwrap_err();
        assert!(matches!(answer, FenceError::Poisoned), "{answer:?}");
    }
}
