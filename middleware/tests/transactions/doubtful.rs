//! Commits whose answer was lost, and attempts that somebody overtook: what is on record is the only answer.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use idempotency::faults::{Fault, Op};
use idempotency::transaction::{BeginError, CommitError, Opening, TransactionalStore as _};
use idempotency::{Engine, Lease, Recovery, State};
use tower_idempotency::Attempt;

use crate::shop::{LEASE_OVER, RECOVERIES, Shop, assert_retryable_503, post_to};

#[tokio::test]
async fn a_lost_answer_that_is_found_out_in_time_is_not_noticed() {
    let shop = Shop::new(Recovery::Rerun).await;
    shop.store.next(Op::CommitTransaction, Fault::LoseReply);
    let first = post_to(&shop.app(Shop::charge_once)).await;
    assert_eq!((first.status, first.text(), first.is_replay()), (201, "{\"run\":1}", false));
    shop.assert_replays(201, "{\"run\":1}").await;
}

#[tokio::test]
async fn what_nobody_knows_yet_is_to_be_asked_again_and_found_out_meanwhile() {
    for recovery in RECOVERIES {
        for (fault, becomes) in [(Fault::LoseReply, State::Completed), (Fault::Disconnect, State::Released)] {
            let shop = Shop::new(recovery).await;
            shop.store.next(Op::CommitTransaction, fault);
            shop.store.always(Op::Fate, Fault::Fail);
            assert_retryable_503(&post_to(&shop.app(Shop::charge_once)).await);
            shop.store.heal();
            shop.until(becomes).await;
            match becomes {
                State::Completed => shop.assert_replays(201, "{\"run\":1}").await,
                _ => shop.assert_runs_again().await,
            }
        }
    }
}

#[tokio::test]
async fn a_panic_while_nobody_knows_is_no_failure_of_the_charge() {
    let shop = Shop::new(Recovery::Hold).await;
    shop.store.next(Op::CommitTransaction, Fault::LoseReply);
    shop.store.always(Op::Fate, Fault::Fail);
    let panics = async |shop: Shop, attempt: Attempt| -> Response {
        let transaction = shop.begin(&attempt).await;
        let committed = shop.commit(&attempt, transaction).await;
        panic!("{committed:?}");
    };
    assert_retryable_503(&post_to(&shop.app(panics)).await);
    assert_eq!(shop.state().await, Some(State::Completed));
    shop.store.heal();
    shop.assert_replays(201, "{\"run\":1}").await;
}

/// A server that says nothing is waited for until the lease is over.
#[tokio::test]
async fn a_commit_that_never_answers_is_answered() {
    let lease = Lease::new(Duration::from_secs(1)).unwrap();
    let mut shop = Shop::new(Recovery::Rerun).await;
    let settings = shop.engine.settings().clone().lease(lease).transaction_limit(lease);
    shop.engine = Engine::new(shop.store.clone(), settings);
    shop.store.next(Op::CommitTransaction, Fault::Stall);
    assert_retryable_503(&post_to(&shop.app(Shop::charge_once)).await);
    shop.assert_runs_again().await;
}

/// Begins too late: somebody took over and is done.
#[tokio::test]
async fn an_attempt_that_was_overtaken_before_it_began_is_answered_from_the_record() {
    let shop = Shop::new(Recovery::Rerun).await;
    let late = async |shop: Shop, attempt: Attempt| {
        overtake(&shop).await;
        assert!(matches!(shop.try_begin(&attempt).await, Err(BeginError::Superseded)));
        (StatusCode::CREATED, "late")
    };
    let first = post_to(&shop.app(late)).await;
    assert_eq!((first.status, first.text()), (201, NEWER));
    shop.assert_replays(201, NEWER).await;
}

#[tokio::test]
async fn an_attempt_that_was_overtaken_before_it_commits_is_answered_from_the_record() {
    for answers in [201, 402, 500] {
        let shop = Shop::new(Recovery::Rerun).await;
        let late = move |shop: Shop, attempt: Attempt| async move {
            overtake(&shop).await;
            let opening = Opening { limit: LEASE_OVER, nonce: attempt.holder().nonce };
            let mut transaction = shop.store.open_transaction(opening).await.unwrap();
            shop.charge(&mut transaction).await;
            assert!(matches!(shop.commit(&attempt, transaction).await, Err(CommitError::Superseded)));
            (StatusCode::from_u16(answers).unwrap(), "late")
        };
        let first = post_to(&shop.app(late)).await;
        assert_eq!((first.status, first.text()), (201, NEWER), "it said {answers}");
        shop.assert_replays(201, NEWER).await;
    }
}

#[tokio::test]
async fn an_attempt_whose_successor_is_running_tells_its_client_to_ask_again() {
    let shop = Shop::new(Recovery::Rerun).await;
    let late = async |shop: Shop, attempt: Attempt| {
        shop.clock.advance(LEASE_OVER);
        let endless = shop.app(async |_: Shop, _: Attempt| std::future::pending::<StatusCode>().await);
        let _running = tokio::spawn(async move { post_to(&endless).await });
        while shop.runs.count() < 2 {
            tokio::task::yield_now().await;
        }
        shop.try_begin(&attempt).await.unwrap_err();
        StatusCode::CREATED
    };
    let first = post_to(&shop.app(late)).await;
    assert_eq!((first.status, first.problem()), (409, Some("request-in-flight")));
    assert!(first.header("retry-after").is_some());
    assert_eq!((shop.state().await, shop.charges().await), (Some(State::InFlight), 0));
}

const NEWER: &str = "{\"run\":2}";

/// The lease is over, and a duplicate takes over and is done.
async fn overtake(shop: &Shop) {
    shop.clock.advance(LEASE_OVER);
    let newer = post_to(&shop.app(Shop::charge_once)).await;
    assert_eq!((newer.status, newer.text()), (201, NEWER));
}
