//! Several transactions of one tenure, what ends one, and effects that are run again.

use idempotency_sqlx::fence::{FenceError, Fences, Once, once};

use super::{BALANCE, Rig, account, add, admitted, anonymous, balance, fresh, id, is_superseded, resource, run};

pub(crate) async fn a_tenure_goes_on_in_further_transactions<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut opened = fences.open(&account()).await.unwrap().commit().await.unwrap();
    let ticket = opened.ticket();
    for _ in 0..3 {
        let mut next = fences.reopen(&opened).await.unwrap();
        add::<R>(&mut next, "UPDATE accounts SET balance = balance + 1 WHERE id = 1").await;
        opened = next.commit().await.unwrap();
        assert_eq!(opened.ticket(), ticket);
    }
    let mut beside = fences.verify(&opened).await.unwrap();
    assert_eq!(R::number(&mut beside, BALANCE).await, 103);
    add::<R>(&mut beside, "UPDATE accounts SET balance = balance + 1 WHERE id = 1").await;
    beside.commit().await.unwrap();
    // The ticket alone will do too, without the look at what was committed.
    let mut next = fences.open_with(&account(), &ticket).await.unwrap();
    assert_eq!(R::number(&mut next, BALANCE).await, 104);
}

pub(crate) async fn a_superseded_tenure_does_not_go_on<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let opened = fences.open_with(&account(), &fresh(33)).await.unwrap().commit().await.unwrap();
    admitted(&fences, &account(), &fresh(34)).await;
    is_superseded(fences.reopen(&opened).await.unwrap_err(), 34);
    is_superseded(fences.verify(&opened).await.unwrap_err(), 34);
    // Somebody else with the same token, as from a source that minted it twice.
    let opened = fences.open_with(&account(), &fresh(35)).await.unwrap().commit().await.unwrap();
    run(rig, "DELETE FROM idempotency_fences").await;
    admitted(&fences, &account(), &fresh(35)).await;
    is_superseded(fences.reopen(&opened).await.unwrap_err(), 35);
}

/// As after a failover to a replica that lagged behind: the opening was copied, what the tenure committed later was
/// not.
pub(crate) async fn a_tenure_whose_commits_are_gone_does_not_go_on<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let opened = fences.open(&account()).await.unwrap().commit().await.unwrap();
    let later = fences.reopen(&opened).await.unwrap().commit().await.unwrap();
    // One from before does not stand in the way of the tenure itself.
    let latest = fences.reopen(&opened).await.unwrap().commit().await.unwrap();
    fences.reopen(&later).await.unwrap().rollback().await;
    run(rig, "UPDATE idempotency_fences SET opened_at = opened_at - 1").await;
    for answer in [fences.reopen(&latest).await, fences.verify(&latest).await] {
        let answer = answer.unwrap_err();
        assert!(matches!(answer, FenceError::Rewound), "{answer:?}");
    }
}

pub(crate) async fn a_tenure_whose_fence_is_gone_does_not_go_on<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let opened = fences.open(&account()).await.unwrap().commit().await.unwrap();
    for set_back in ["UPDATE idempotency_fences SET token = token - 1", "DELETE FROM idempotency_fences"] {
        run(rig, set_back).await;
        let answer = fences.reopen(&opened).await.unwrap_err();
        assert!(matches!(answer, FenceError::Rewound), "{answer:?}");
    }
}

pub(crate) async fn a_ticket_without_a_holder_has_no_further_transaction<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let opened = fences.open_with(&account(), &anonymous(33)).await.unwrap().commit().await.unwrap();
    let strict = rig.strict();
    let of_one_transaction = strict.open(&resource("account/2")).await.unwrap().commit().await.unwrap();
    for answer in [fences.reopen(&opened).await, strict.reopen(&of_one_transaction).await] {
        let answer = answer.unwrap_err();
        assert!(matches!(answer, FenceError::AlreadyApplied), "{answer:?}");
    }
}

pub(crate) async fn several_fences_are_one_tenure<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let both = fences.open_all(&[resource("b"), resource("a")]).await.unwrap().commit().await.unwrap();
    let names: Vec<_> = both.fences().map(|(resource, _)| resource.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let both = fences.reopen(&both).await.unwrap().commit().await.unwrap();
    fences.open(&resource("b")).await.unwrap().commit().await.unwrap();
    let answer = fences.reopen(&both).await.unwrap_err();
    assert!(matches!(answer, FenceError::Superseded { .. }), "{answer:?}");
}

pub(crate) async fn a_failed_statement_poisons_the_commit<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut transaction = fences.open_with(&account(), &fresh(33)).await.unwrap();
    add::<R>(&mut transaction, "UPDATE accounts SET balance = 0 WHERE id = 1").await;
    // A statement of ours fails, and the program goes on as if nothing had been.
    R::execute(&mut transaction, "ALTER TABLE idempotency_once RENAME TO somewhere_else").await;
    once(&mut transaction, &id("k")).await.unwrap_err();
    let answer = transaction.commit().await.unwrap_err();
    assert!(matches!(answer, FenceError::Poisoned), "{answer:?}");
}

/// What comes after the end is written without the fence, and its commit must not say that all is well. The connection is good
/// for the next one.
pub(crate) async fn a_transaction_that_was_ended_by_hand_is_not_committed<R: Rig>(rig: &R) {
    let fences = rig.fences();
    for ends in ["ROLLBACK", "COMMIT"] {
        let mut transaction = fences.open(&account()).await.unwrap();
        R::execute(&mut transaction, ends).await;
        add::<R>(&mut transaction, "UPDATE accounts SET balance = balance + 1 WHERE id = 1").await;
        let answer = transaction.commit().await.unwrap_err();
        assert!(matches!(answer, FenceError::Poisoned), "{ends}: {answer:?}");
    }
    // More than the pool has connections.
    for _ in 0..20 {
        fences.open(&account()).await.unwrap().commit().await.unwrap();
    }
}

pub(crate) async fn an_effect_happens_once_however_often_it_is_run<R: Rig>(rig: &R) {
    let fences = rig.fences();
    // An attempt that died after its commit is run again, with a larger token.
    for token in [33, 34, 35] {
        let mut transaction = fences.open_with(&account(), &fresh(token)).await.unwrap();
        if once(&mut transaction, &id("charge")).await.unwrap() == Once::First {
            add::<R>(&mut transaction, "UPDATE accounts SET balance = balance - 10 WHERE id = 1").await;
        }
        transaction.commit().await.unwrap();
    }
    assert_eq!(balance(rig).await, 90);
}

pub(crate) async fn of_two_effects_at_once_the_second_one_waits<R: Rig>(rig: &R) {
    let (one, two) = (rig.fences(), rig.fences());
    let mut first = one.open(&resource("worker/1")).await.unwrap();
    assert_eq!(once(&mut first, &id("charge")).await.unwrap(), Once::First);
    let second = async {
        // Another fence: only the marker is the same.
        let mut second = two.open(&resource("worker/2")).await.unwrap();
        let answer = once(&mut second, &id("charge")).await.unwrap();
        // No error has broken the transaction.
        second.commit().await.unwrap();
        answer
    };
    let (answer, ()) = tokio::join!(second, async {
        rig.until_waiting().await;
        first.commit().await.unwrap();
    });
    assert_eq!(answer, Once::Already);
}

pub(crate) async fn a_marker_that_was_rolled_back_is_no_marker<R: Rig>(rig: &R) {
    let (one, two) = (rig.fences(), rig.fences());
    let mut first = one.open(&resource("worker/1")).await.unwrap();
    assert_eq!(once(&mut first, &id("charge")).await.unwrap(), Once::First);
    let second = async {
        let mut second = two.open(&resource("worker/2")).await.unwrap();
        once(&mut second, &id("charge")).await.unwrap()
    };
    let (answer, ()) = tokio::join!(second, async {
        rig.until_waiting().await;
        first.rollback().await;
    });
    assert_eq!(answer, Once::First);
}
