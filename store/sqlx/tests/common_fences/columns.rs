//! Fences in the guarded row.

use idempotency::{FenceTicket, Nonce, TokenSource};
use idempotency_sqlx::fence::{Admit, FenceError, Fences, Written};

use super::{BALANCE, Rig, anonymous, balance, fresh, number, resource, ticket, token};

/// Opens account 1 in a transaction of its own.
async fn open<R: Rig>(rig: &R, ticket: &FenceTicket, admit: Admit) -> Written {
    let mut transaction = rig.begin().await;
    let written = R::open_row(&mut transaction, 1, ticket, admit).await.unwrap();
    transaction.commit().await.unwrap();
    written
}

pub(crate) async fn older_tokens_are_refused_by_the_row<R: Rig>(rig: &R) {
    let (holder, same) = (Nonce::random(), Admit::SameOrNewer);
    assert_eq!(open(rig, &fresh(33), same).await, Written::Applied);
    assert_eq!(open(rig, &ticket(34, holder), same).await, Written::Applied);
    let superseded = Written::Superseded { current: token(34) };
    assert_eq!(open(rig, &fresh(33), same).await, superseded);
    assert_eq!(open(rig, &ticket(34, holder), same).await, Written::Applied);
    assert_eq!(open(rig, &fresh(34), same).await, superseded);
    assert_eq!(open(rig, &fresh(35), same).await, Written::Applied);
    assert_eq!(number(rig, "SELECT fencing_token FROM accounts WHERE id = 1").await, 35);
    // Its neighbour has its own.
    let mut transaction = rig.begin().await;
    assert_eq!(R::open_row(&mut transaction, 2, &fresh(1), same).await.unwrap(), Written::Applied);
    transaction.commit().await.unwrap();
    assert_eq!(balance(rig).await, 100);
}

/// How many rows an UPDATE reports that changes nothing depends on the driver's flags. Who was admitted does not.
pub(crate) async fn case_61_equal_values_written_again_are_told_by_the_row<R: Rig>(rig: &R) {
    let (once, holder) = (Admit::StrictlyNewer, Nonce::random());
    assert_eq!(open(rig, &ticket(33, holder), once).await, Written::Applied);
    assert_eq!(open(rig, &ticket(33, holder), once).await, Written::AlreadyApplied);
    assert_eq!(open(rig, &ticket(33, holder), Admit::SameOrNewer).await, Written::Applied);
    assert_eq!(open(rig, &fresh(33), once).await, Written::Superseded { current: token(33) });
    // Without a holder it is strict whatever is said.
    assert_eq!(open(rig, &anonymous(34), Admit::SameOrNewer).await, Written::Applied);
    assert_eq!(open(rig, &anonymous(34), Admit::SameOrNewer).await, Written::AlreadyApplied);
}

pub(crate) async fn a_missing_row_is_said_so<R: Rig>(rig: &R) {
    let mut transaction = rig.begin().await;
    let written = R::open_row(&mut transaction, 3, &fresh(33), Admit::SameOrNewer).await.unwrap();
    assert_eq!(written, Written::RowMissing);
}

pub(crate) async fn a_row_refuses_the_far_future<R: Rig>(rig: &R) {
    let now = rig.fences().open(&resource("clock")).await.unwrap();
    let number = now.ticket().token.get() + 3_700_000_000;
    now.rollback().await;
    let far = FenceTicket { token: token(number), source: TokenSource::LEASES, ..fresh(1) };
    let mut transaction = rig.begin().await;
    let answer = R::open_row(&mut transaction, 1, &far, Admit::SameOrNewer).await;
    assert!(matches!(answer, Err(FenceError::FromTheFuture)), "{answer:?}");
    let written =
        R::open_row(&mut transaction, 1, &FenceTicket { source: super::COUNTER, ..far }, Admit::SameOrNewer).await;
    assert_eq!(written.unwrap(), Written::Applied);
}

pub(crate) async fn an_older_token_behind_a_newer_one_finds_the_row_taken<R: Rig>(rig: &R) {
    let mut newer = rig.begin().await;
    let written = R::open_row(&mut newer, 1, &fresh(34), Admit::SameOrNewer).await.unwrap();
    assert_eq!(written, Written::Applied);
    let older = fresh(33);
    let (written, ()) = tokio::join!(open(rig, &older, Admit::SameOrNewer), async {
        rig.until_waiting().await;
        newer.commit().await.unwrap();
    });
    assert_eq!(written, Written::Superseded { current: token(34) });
}

/// A (33) has read and pauses, B (34) takes over and opens the row before it reads: A comes too late, whoever writes first.
pub(crate) async fn opening_a_row_first_keeps_a_paused_holder_from_losing_an_update<R: Rig>(rig: &R) {
    let (a, same) = (fresh(33), Admit::SameOrNewer);
    assert_eq!(open(rig, &a, same).await, Written::Applied);
    let read_by_a = balance(rig).await;
    let mut by_b = rig.begin().await;
    assert_eq!(R::open_row(&mut by_b, 1, &fresh(34), same).await.unwrap(), Written::Applied);
    assert_eq!(R::number(&mut by_b, BALANCE).await, read_by_a);
    by_b.commit().await.unwrap();
    assert_eq!(open(rig, &a, same).await, Written::Superseded { current: token(34) });
}

pub(crate) async fn case_76_a_batch_of_rows_is_opened_whole_or_rolled_back<R: Rig>(rig: &R) {
    let same = Admit::SameOrNewer;
    assert_eq!(open(rig, &fresh(32), same).await, Written::Applied);
    let mut newer = rig.begin().await;
    assert_eq!(R::open_row(&mut newer, 2, &fresh(34), same).await.unwrap(), Written::Applied);
    newer.commit().await.unwrap();

    let (mut batch, ticket) = (rig.begin().await, fresh(33));
    assert_eq!(R::open_row(&mut batch, 1, &ticket, same).await.unwrap(), Written::Applied);
    R::execute(&mut batch, "UPDATE accounts SET balance = 0 WHERE id = 1").await;
    let second = R::open_row(&mut batch, 2, &ticket, same).await.unwrap();
    assert_eq!(second, Written::Superseded { current: token(34) });
    batch.rollback().await.unwrap();
    assert_eq!(number(rig, "SELECT fencing_token FROM accounts WHERE id = 1").await, 32);
    assert_eq!(balance(rig).await, 100);
}
