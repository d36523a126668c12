//! Which tokens are admitted.

use idempotency::{FenceTicket, Nonce, TokenSource};
use idempotency_sqlx::fence::{FenceError, Fences};

use super::{
    BALANCE, COUNTER, Rig, account, add, admitted, anonymous, balance, fresh, is_superseded, number, refused, resource,
    run, ticket, token,
};

pub(crate) async fn case_76_an_older_token_fails_after_a_newer_one_and_the_same_may_come_again<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let holder = Nonce::random();
    admitted(&fences, &account(), &fresh(33)).await;
    admitted(&fences, &account(), &ticket(34, holder)).await;
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 34);
    admitted(&fences, &account(), &ticket(34, holder)).await;
    is_superseded(refused(&fences, &account(), &fresh(34)).await, 34);
    admitted(&fences, &account(), &fresh(35)).await;
    is_superseded(refused(&fences, &account(), &ticket(34, holder)).await, 35);
}

pub(crate) async fn a_fence_is_made_at_its_first_opening<R: Rig>(rig: &R) {
    let fences = rig.fences();
    admitted(&fences, &account(), &fresh(33)).await;
    is_superseded(refused(&fences, &account(), &fresh(32)).await, 33);
    // Each resource has its own.
    admitted(&fences, &resource("account/2"), &fresh(1)).await;
    let opened = fences.open(&resource("account/3")).await.unwrap();
    assert_eq!(opened.ticket().source, TokenSource::DATABASE);
    opened.commit().await.unwrap();
}

pub(crate) async fn a_deleted_row_does_not_forget_its_fence<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut newer = fences.open_with(&account(), &fresh(34)).await.unwrap();
    R::execute(&mut newer, "DELETE FROM accounts WHERE id = 1").await;
    newer.commit().await.unwrap();
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 34);
}

pub(crate) async fn case_76_a_batch_is_written_whole_or_not_at_all<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut batch = fences.open_with(&account(), &fresh(33)).await.unwrap();
    add::<R>(&mut batch, "UPDATE accounts SET balance = balance + 1 WHERE id = 1").await;
    let broken = R::try_execute(&mut batch, "INSERT INTO accounts (id, balance) VALUES (2, 0)").await;
    assert!(broken.unwrap_err().as_database_error().unwrap().is_unique_violation());
    batch.rollback().await;
    assert_eq!(balance(rig).await, 100);

    let mut batch = fences.open_with(&account(), &fresh(34)).await.unwrap();
    assert_eq!(R::execute(&mut batch, "UPDATE accounts SET balance = balance + 1").await, 2);
    batch.commit().await.unwrap();
    assert_eq!((balance(rig).await, number(rig, "SELECT balance FROM accounts WHERE id = 2").await), (101, 201));
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 34);
}

pub(crate) async fn a_token_without_a_holder_is_good_for_one_transaction<R: Rig>(rig: &R) {
    let fences = rig.fences();
    admitted(&fences, &account(), &anonymous(33)).await;
    let again = refused(&fences, &account(), &anonymous(33)).await;
    assert!(matches!(again, FenceError::AlreadyApplied), "{again:?}");
    // Somebody who has a name did not do it.
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 33);
    admitted(&fences, &account(), &fresh(34)).await;
    is_superseded(refused(&fences, &account(), &anonymous(34)).await, 34);
    // A name of zeros is none.
    admitted(&fences, &account(), &ticket(35, Nonce::from_bytes([0; 16]))).await;
    let again = refused(&fences, &account(), &anonymous(35)).await;
    assert!(matches!(again, FenceError::AlreadyApplied), "{again:?}");
}

pub(crate) async fn strictly_newer_tells_a_repeat_from_being_superseded<R: Rig>(rig: &R) {
    let (fences, holder) = (rig.strict(), Nonce::random());
    admitted(&fences, &account(), &ticket(33, holder)).await;
    let again = refused(&fences, &account(), &ticket(33, holder)).await;
    assert!(matches!(again, FenceError::AlreadyApplied), "{again:?}");
    is_superseded(refused(&fences, &account(), &fresh(33)).await, 33);
    admitted(&fences, &account(), &fresh(34)).await;
    is_superseded(refused(&fences, &account(), &ticket(33, holder)).await, 34);
}

pub(crate) async fn another_source_is_refused_until_an_operator_resets_the_fence<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let other = FenceTicket { source: TokenSource::new(8), ..fresh(9) };
    admitted(&fences, &account(), &fresh(33)).await;
    let mismatch = refused(&fences, &account(), &other).await;
    assert!(matches!(mismatch, FenceError::SourceMismatch { stored: COUNTER }), "{mismatch:?}");
    let mismatch = fences.open(&account()).await.unwrap_err();
    assert!(matches!(mismatch, FenceError::SourceMismatch { stored: COUNTER }), "{mismatch:?}");

    fences.reset(&account(), other.source).await.unwrap();
    let mismatch = refused(&fences, &account(), &fresh(34)).await;
    assert!(matches!(mismatch, FenceError::SourceMismatch { .. }), "{mismatch:?}");
    admitted(&fences, &account(), &other).await;
    is_superseded(refused(&fences, &account(), &FenceTicket { token: token(8), ..other }).await, 9);
    // Also where there is no fence yet.
    fences.reset(&resource("new"), other.source).await.unwrap();
    admitted(&fences, &resource("new"), &FenceTicket { token: token(1), ..other }).await;
}

pub(crate) async fn a_reset_refuses_what_was_minted_before_it<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let before = fences.open(&account()).await.unwrap().commit().await.unwrap();
    fences.reset(&account(), TokenSource::LEASES).await.unwrap();
    let old = FenceTicket { source: TokenSource::LEASES, ..before.ticket() };
    let answer = refused(&fences, &account(), &old).await;
    assert!(matches!(answer, FenceError::Superseded { .. }), "{answer:?}");
    let answer = fences.reopen(&before).await.unwrap_err();
    assert!(matches!(answer, FenceError::SourceMismatch { .. }), "{answer:?}");

    fences.reset(&account(), TokenSource::DATABASE).await.unwrap();
    let after = fences.open(&account()).await.unwrap();
    assert!(after.ticket().token > before.ticket().token);
}

pub(crate) async fn a_token_from_the_far_future_is_refused_and_not_stored<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let now = fences.open(&resource("clock")).await.unwrap().ticket().token.get();
    let of_leases = |number| FenceTicket { source: TokenSource::LEASES, ..fresh(number) };
    let (near, far) = (of_leases(now + 3_500_000_000), of_leases(now + 3_700_000_000));
    // Where there is no fence, and where there is one.
    for later in [0, 1] {
        let answer = refused(&fences, &account(), &far).await;
        assert!(matches!(answer, FenceError::FromTheFuture), "{answer:?}");
        admitted(&fences, &account(), &of_leases(now + later)).await;
    }
    admitted(&fences, &account(), &near).await;
    is_superseded(refused(&fences, &account(), &of_leases(now)).await, near.token.get());
    // Numbers that are no times are not compared with one.
    admitted(&fences, &resource("counted"), &fresh(now + 3_700_000_000)).await;
}

pub(crate) async fn what_was_rolled_back_was_not_admitted<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut transaction = fences.open_with(&account(), &fresh(34)).await.unwrap();
    add::<R>(&mut transaction, "UPDATE accounts SET balance = 0 WHERE id = 1").await;
    transaction.rollback().await;
    admitted(&fences, &account(), &fresh(33)).await;
    assert_eq!(balance(rig).await, 100);
}

pub(crate) async fn a_dropped_transaction_is_rolled_back<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let mut transaction = fences.open_with(&account(), &fresh(34)).await.unwrap();
    add::<R>(&mut transaction, "UPDATE accounts SET balance = 0 WHERE id = 1").await;
    drop(transaction);
    // Waits until that is done.
    admitted(&fences, &account(), &fresh(33)).await;
    assert_eq!(balance(rig).await, 100);
}

pub(crate) async fn resources_are_compared_byte_by_byte<R: Rig>(rig: &R) {
    let fences = rig.fences();
    admitted(&fences, &resource("a"), &fresh(34)).await;
    for other in ["A", "a ", "á", "a\u{301}"] {
        admitted(&fences, &resource(other), &fresh(33)).await;
    }
    let longest = "x".repeat(255);
    admitted(&fences, &resource(&longest), &fresh(33)).await;
}

pub(crate) async fn minted_tokens_rise_while_the_clock_steps_back<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let first = fences.open(&account()).await.unwrap().commit().await.unwrap().ticket();
    // As if the clock had stepped back by half an hour since.
    run(rig, "UPDATE idempotency_fences SET token = token + 1800000000, opened_at = opened_at + 1800000000").await;
    let second = fences.open(&account()).await.unwrap().commit().await.unwrap();
    assert_eq!(second.ticket().token.get(), first.token.get() + 1_800_000_001);
    fences.reopen(&second).await.unwrap().commit().await.unwrap();
    let third = fences.open(&account()).await.unwrap();
    assert_eq!(third.ticket().token.get(), first.token.get() + 1_800_000_002);
}

/// A counter that rose on takeover and was thrown away.
pub(crate) async fn case_73_a_late_write_does_not_move_the_value_back<R: Rig>(rig: &R) {
    let fences = rig.fences();
    let paused = fresh(1);
    admitted(&fences, &account(), &paused).await;
    let mut next = fences.open_with(&account(), &fresh(2)).await.unwrap();
    add::<R>(&mut next, "UPDATE accounts SET balance = 200 WHERE id = 1").await;
    next.commit().await.unwrap();
    // It wakes and would write 100; there is no transaction to write it in.
    is_superseded(refused(&fences, &account(), &paused).await, 2);
    assert_eq!(number(rig, BALANCE).await, 200);
}
