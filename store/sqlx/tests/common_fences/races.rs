//! Several at once.

use std::collections::BTreeSet;

use idempotency_sqlx::fence::{FenceError, Fences};
use tokio::task::JoinSet;

use super::{BALANCE, Rig, account, add, balance, fresh, is_superseded, refused, resource};

pub(crate) async fn tokens_rise_over_a_thousand_openings<R: Rig>(rig: &R) {
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let fences = rig.fences();
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            while tokens.len() < 250 {
                match fences.open(&account()).await {
                    Ok(opened) => tokens.push(opened.commit().await.unwrap().ticket().token),
                    // An unfair file can keep one of them out for long.
                    Err(FenceError::Store(error)) => assert_eq!(error.kind(), idempotency::StoreErrorKind::Busy),
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
            tokens
        });
    }
    let all: BTreeSet<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(all.len(), 1000);
}

pub(crate) async fn no_update_is_lost_among_many_writers<R: Rig>(rig: &R) {
    let add_ten = async || {
        for _ in 0..10 {
            let mut opened = rig.fences().open(&account()).await.unwrap();
            // Read, and then write what was read, as a program does that computes in between.
            let read = R::number(&mut opened, BALANCE).await;
            R::execute(&mut opened, "UPDATE accounts SET balance = -1 WHERE id = 1").await;
            tokio::task::yield_now().await;
            R::execute(&mut opened, WRITES[usize::try_from(read - 100).unwrap()]).await;
            opened.commit().await.unwrap();
        }
    };
    tokio::join!(add_ten(), add_ten(), add_ten());
    assert_eq!(balance(rig).await, 130);
}

/// No statement is put together here either.
const WRITES: [&str; 31] = {
    macro_rules! writes {
        ($($balance:literal)*) => { [$(concat!("UPDATE accounts SET balance = ", $balance, " WHERE id = 1")),*] };
    }
    writes!(101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127 128 129
        130 131)
};

pub(crate) async fn an_older_token_behind_a_newer_one_waits_and_is_refused<R: Rig>(rig: &R) {
    let (older, newer) = (rig.fences(), rig.fences());
    let mut holder = newer.open_with(&account(), &fresh(34)).await.unwrap();
    add::<R>(&mut holder, "UPDATE accounts SET balance = 134 WHERE id = 1").await;
    let (resource, ticket) = (account(), fresh(33));
    let (answer, ()) = tokio::join!(refused(&older, &resource, &ticket), async {
        rig.until_waiting().await;
        holder.commit().await.unwrap();
    });
    is_superseded(answer, 34);
    assert_eq!(balance(rig).await, 134);
}

pub(crate) async fn a_newer_token_behind_an_older_one_waits_and_sees_its_writes<R: Rig>(rig: &R) {
    let (older, newer) = (rig.fences(), rig.fences());
    super::admitted(&older, &account(), &fresh(32)).await;
    let mut holder = older.open_with(&account(), &fresh(33)).await.unwrap();
    add::<R>(&mut holder, "UPDATE accounts SET balance = 133 WHERE id = 1").await;
    let (next, resource) = (fresh(34), account());
    let (answer, ()) = tokio::join!(newer.open_with(&resource, &next), async {
        rig.until_waiting().await;
        holder.commit().await.unwrap();
    });
    assert_eq!(R::number(&mut answer.unwrap(), BALANCE).await, 133);
}

pub(crate) async fn two_first_openings_at_once_are_both_admitted<R: Rig>(rig: &R) {
    let (one, two) = (rig.fences(), rig.fences());
    let mut holder = one.open_with(&account(), &fresh(33)).await.unwrap();
    add::<R>(&mut holder, "UPDATE accounts SET balance = 133 WHERE id = 1").await;
    let (next, resource) = (fresh(34), account());
    let (answer, ()) = tokio::join!(two.open_with(&resource, &next), async {
        rig.until_waiting().await;
        holder.commit().await.unwrap();
    });
    let mut second = answer.unwrap();
    assert_eq!(R::number(&mut second, BALANCE).await, 133);
    second.commit().await.unwrap();
    is_superseded(refused(&one, &account(), &fresh(33)).await, 34);
}

/// A (33) reads and pauses, its lease ends, B (34) takes over, A wakes and writes, and only then does B write.
pub(crate) async fn opening_first_keeps_a_paused_holder_from_losing_an_update<R: Rig>(rig: &R) {
    let (a, b) = (fresh(33), fresh(34));
    let fences = rig.fences();
    let opened_by_a = fences.open_with(&account(), &a).await.unwrap().commit().await.unwrap();
    // B opens before it reads. What A would add after that has no transaction to be in.
    let mut by_b = fences.open_with(&account(), &b).await.unwrap();
    let read = R::number(&mut by_b, BALANCE).await;
    let opened_by_b = by_b.commit().await.unwrap();
    is_superseded(fences.reopen(&opened_by_a).await.unwrap_err(), 34);
    let mut by_b = fences.reopen(&opened_by_b).await.unwrap();
    assert_eq!(R::number(&mut by_b, BALANCE).await, read);
    add::<R>(&mut by_b, "UPDATE accounts SET balance = 107 WHERE id = 1").await;
    by_b.commit().await.unwrap();
    assert_eq!(balance(rig).await, 107);
}

/// The same with a token that is compared at the write alone: both writes are let through, and A's is lost.
pub(crate) async fn a_token_checked_only_at_the_write_loses_an_update<R: Rig>(rig: &R) {
    super::run(rig, "UPDATE accounts SET fencing_token = 32").await;
    let read_by_a = balance(rig).await;
    let read_by_b = balance(rig).await;
    assert_eq!((read_by_a, read_by_b), (100, 100));
    for write in [
        "UPDATE accounts SET balance = 105, fencing_token = 33 WHERE id = 1 AND fencing_token < 33",
        "UPDATE accounts SET balance = 107, fencing_token = 34 WHERE id = 1 AND fencing_token < 34",
    ] {
        let mut transaction = rig.begin().await;
        assert_eq!(R::execute(&mut transaction, write).await, 1);
        transaction.commit().await.unwrap();
    }
    // A was told that its 5 had been added.
    assert_eq!(balance(rig).await, 107);
}

pub(crate) async fn several_resources_in_any_order_do_not_deadlock<R: Rig>(rig: &R) {
    let both = [resource("account/1"), resource("account/2"), resource("account/1")];
    let mut reversed = both.clone();
    reversed.reverse();
    let mut tasks = JoinSet::new();
    for order in [both, reversed] {
        let fences = rig.fences();
        tasks.spawn(async move {
            for _ in 0..20 {
                let opened = fences.open_all(&order).await.unwrap();
                assert_eq!(opened.fences().count(), 2);
                opened.commit().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let nothing = rig.fences().open_all(&[]).await.unwrap_err();
    assert!(matches!(nothing, FenceError::Store(_)), "{nothing:?}");
}
