//! Handlers that committed: the answer is on record, whatever they do afterwards.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::transaction::{self, BeginError, TransactionState};
use idempotency::{Recovery, State};
use tokio::sync::Notify;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency::{Attempt, recorded};

use crate::common::send;
use crate::shop::{RECOVERIES, Shop, post_to, request};

const FIRST: &str = "{\"run\":1}";

#[tokio::test]
async fn a_charge_and_its_answer_come_together_and_are_replayed() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        let first = post_to(&shop.app(Shop::charge_once)).await;
        assert_eq!((first.status, first.text(), first.is_replay()), (201, FIRST, false));
        assert_eq!(first.header("content-type"), Some("application/json"));
        let replay = post_to(&shop.app(Shop::charge_once)).await;
        assert_eq!((replay.status, replay.text(), replay.is_replay()), (201, FIRST, true));
        assert_eq!(replay.header("content-type"), Some("application/json"));
        assert_eq!((shop.charges().await, shop.runs.count()), (1, 1));
        assert_eq!(shop.store.calls(Op::Complete) + shop.store.calls(Op::Release), 0, "nothing more is recorded");
    }
}

/// One key has one answer.
#[tokio::test]
async fn another_answer_than_the_committed_one_is_not_sent() {
    for status in [500, 402, 200] {
        let shop = Shop::new(Recovery::Hold).await;
        let changes_its_mind = move |shop: Shop, attempt: Attempt| async move {
            let transaction = shop.begin(&attempt).await;
            shop.commit(&attempt, transaction).await.unwrap();
            (StatusCode::from_u16(status).unwrap(), "something else")
        };
        let first = post_to(&shop.app(changes_its_mind)).await;
        assert_eq!((first.status, first.text()), (201, FIRST), "it said {status}");
        shop.assert_replays(201, FIRST).await;
    }
}

/// A handler may go on with what the commit gave back.
#[tokio::test]
async fn headers_may_be_added_to_the_first_answer() {
    let shop = Shop::new(Recovery::Rerun).await;
    let adds = async |shop: Shop, attempt| ([("x-first", "1")], shop.charge_once(attempt).await);
    let first = post_to(&shop.app(adds)).await;
    assert_eq!((first.status, first.header("x-first"), first.is_replay()), (201, Some("1"), false));
    shop.assert_replays(201, FIRST).await;
}

#[tokio::test]
async fn an_outcome_that_was_committed_as_such_is_the_answer() {
    let shop = Shop::new(Recovery::Rerun).await;
    let commits = async |shop: Shop, attempt: Attempt| {
        let transaction = shop.begin(&attempt).await;
        let outcome = recorded(Response::builder().status(202).body("queued".into()).unwrap());
        transaction::commit(&shop.store, &attempt, transaction, outcome).await.unwrap();
        StatusCode::ACCEPTED
    };
    assert_eq!(post_to(&shop.app(commits)).await.text(), "queued");
    shop.assert_replays(202, "queued").await;
}

#[tokio::test]
async fn a_panic_after_the_commit_is_answered_from_the_record() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        let panics = async |shop: Shop, attempt: Attempt| -> Response {
            shop.charge_once(attempt).await;
            panic!("after the commit");
        };
        let first = post_to(&shop.app(panics)).await;
        assert_eq!((first.status, first.text()), (201, FIRST));
        shop.assert_replays(201, FIRST).await;
    }
}

#[tokio::test]
async fn an_error_after_the_commit_leaves_the_record() {
    let shop = Shop::new(Recovery::Hold).await;
    let breaks = service_fn({
        let shop = shop.clone();
        move |request: Request<Body>| {
            let shop = shop.clone();
            async move {
                shop.runs.begin();
                shop.charge_once(request.extensions().get::<Attempt>().unwrap().clone()).await;
                Err::<Response, _>(io::Error::other("no"))
            }
        }
    });
    shop.layer().layer(breaks).oneshot(request()).await.unwrap_err();
    assert_eq!(shop.state().await, Some(State::Completed));
    shop.assert_replays(201, FIRST).await;
}

/// What it says of a decline is not recorded over the charge, nor sent.
#[tokio::test]
async fn a_second_transaction_changes_nothing() {
    for fault in [None, Some(Fault::Fail)] {
        let shop = Shop::new(Recovery::Hold).await;
        let begins_again = move |shop: Shop, attempt: Attempt| async move {
            let transaction = shop.begin(&attempt).await;
            shop.commit(&attempt, transaction).await.unwrap();
            if let Some(fault) = fault {
                shop.store.next(Op::Renew, fault);
            }
            assert!(matches!(shop.try_begin(&attempt).await, Err(BeginError::Superseded)));
            assert_eq!(attempt.transaction(), TransactionState::Committed);
            (StatusCode::PAYMENT_REQUIRED, "declined")
        };
        let first = post_to(&shop.app(begins_again)).await;
        assert_eq!((first.status, first.text()), (201, FIRST));
        shop.store.heal();
        shop.assert_replays(201, FIRST).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_has_its_charge_and_its_answer_once() {
    for leaves_in_commit in [false, true] {
        let shop = Shop::new(Recovery::Rerun).await;
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let waits = {
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            move |shop: Shop, attempt: Attempt| {
                let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
                async move {
                    let transaction = shop.begin(&attempt).await;
                    begun.notify_one();
                    go_on.notified().await;
                    shop.commit(&attempt, transaction).await.unwrap()
                }
            }
        };
        let app = shop.app(waits);
        if leaves_in_commit {
            shop.store.next(Op::CommitTransaction, Fault::Late(Duration::from_millis(200)));
            go_on.notify_one();
        }
        let client = tokio::spawn(async move { send::<_, Body>(&app, request()).await });
        begun.notified().await;
        while leaves_in_commit && shop.store.calls(Op::CommitTransaction) == 0 {
            tokio::task::yield_now().await;
        }
        client.abort();
        client.await.unwrap_err();
        go_on.notify_one();
        assert!(shop.engine.drain(Duration::from_secs(60)).await);
        assert_eq!(shop.state().await, Some(State::Completed));
        shop.assert_replays(201, FIRST).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_not_from_the_layers_handler_is_left_alone() {
    let shop = Shop::new(Recovery::Hold).await;
    let app = shop.app(async |shop: Shop, attempt: Attempt| shop.charged(&attempt));
    assert_eq!(post_to(&app).await.status, 201, "a whole response without a transaction is recorded like any other");
    assert!(post_to(&app).await.is_replay());
    assert_eq!(shop.store.calls(Op::Complete), 1);
}
