//! Handlers that began and did not commit: nothing stays, and what becomes of the key.

use std::io;

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode};
use idempotency::faults::{Fault, Op};
use idempotency::{Recovery, State};
use tokio::time::timeout;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency::{Attempt, Verdict};
use tracing::Level;

use crate::common::send;
use crate::log::Log;
use crate::shop::{RECOVERIES, Shop, assert_retryable_503, post_to, request};

/// A handler that begins, and says this without a commit.
fn says(
    status: u16,
    said: Option<Verdict>,
) -> impl Fn(Shop, Attempt) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>> + Clone + Send + Sync + 'static
{
    move |shop, attempt| {
        Box::pin(async move {
            let transaction = shop.begin(&attempt).await;
            drop(transaction);
            let mut response = (StatusCode::from_u16(status).unwrap(), "said").into_response();
            if let Some(verdict) = said {
                response.extensions_mut().insert(verdict);
            }
            response
        })
    }
}

/// Under `Hold` too: for certain nothing happened.
#[tokio::test]
async fn a_failure_rolls_back_and_frees_the_key() {
    for recovery in RECOVERIES {
        for status in [500, 503, 400, 408, 422, 307] {
            let shop = Shop::new(recovery).await;
            let first = post_to(&shop.app(says(status, None))).await;
            assert_eq!((first.status, first.text()), (status, "said"));
            shop.assert_runs_again().await;
        }
    }
}

#[tokio::test]
async fn a_panic_rolls_back_and_frees_the_key() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        let panics = async |shop: Shop, attempt: Attempt| -> Response {
            let _transaction = shop.begin(&attempt).await;
            panic!("before the commit");
        };
        assert_eq!(post_to(&shop.app(panics)).await.status, 500);
        shop.assert_runs_again().await;
    }
}

#[tokio::test]
async fn an_error_rolls_back_and_frees_the_key() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        let inner = shop.clone();
        let breaks = service_fn(move |request: Request<Body>| {
            let shop = inner.clone();
            async move {
                let _transaction = shop.begin(request.extensions().get::<Attempt>().unwrap()).await;
                Err::<Response, _>(io::Error::other("no"))
            }
        });
        shop.layer().layer(breaks).oneshot(request()).await.unwrap_err();
        shop.assert_runs_again().await;
    }
}

#[tokio::test]
async fn a_decision_is_recorded_like_any_other() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        let app = shop.app(says(402, None));
        assert_eq!(post_to(&app).await.status, 402);
        let replay = post_to(&app).await;
        assert_eq!((replay.status, replay.text(), replay.is_replay()), (402, "said", true));
        assert_eq!((shop.charges().await, shop.runs.count()), (0, 1));
    }
}

#[tokio::test]
async fn a_success_without_a_commit_is_not_sent() {
    for status in [201, 303] {
        for said in [None, Some(Verdict::Record), Some(Verdict::Release)] {
            let shop = Shop::new(Recovery::Hold).await;
            let (log, _logged) = Log::begin();
            let first = post_to(&shop.app(says(status, said))).await;
            if (status, said) == (303, Some(Verdict::Release)) {
                assert_eq!(first.status, 303, "nothing was done, and it says so");
            } else {
                assert_retryable_503(&first);
                let errors = log.at(Level::ERROR);
                assert!(errors.iter().any(|line| line.contains("did not commit")), "{errors:?}");
            }
            shop.assert_runs_again().await;
        }
    }
}

/// The handler knows of something outside of its transaction.
#[tokio::test]
async fn what_a_handler_says_of_its_failure_counts() {
    let shop = Shop::new(Recovery::Hold).await;
    let first = post_to(&shop.app(says(500, Some(Verdict::InDoubt)))).await;
    assert_eq!((first.status, shop.state().await), (500, Some(State::InDoubt)));
    let shop = Shop::new(Recovery::Hold).await;
    post_to(&shop.app(says(409, Some(Verdict::InDoubt)))).await;
    assert_eq!(shop.state().await, Some(State::InDoubt));
    let shop = Shop::new(Recovery::Hold).await;
    post_to(&shop.app(says(500, Some(Verdict::Record)))).await;
    assert_eq!((shop.state().await, shop.charges().await), (Some(State::Completed), 0));
}

#[tokio::test]
async fn a_transaction_that_cannot_be_begun_frees_the_key() {
    for op in [Op::Renew, Op::OpenTransaction] {
        let shop = Shop::new(Recovery::Hold).await;
        shop.store.next(op, Fault::Fail);
        let begins = async |shop: Shop, attempt: Attempt| {
            shop.try_begin(&attempt).await.unwrap_err();
            StatusCode::SERVICE_UNAVAILABLE
        };
        assert_eq!(post_to(&shop.app(begins)).await.status, 503);
        shop.assert_runs_again().await;
    }
}

#[tokio::test]
async fn a_commit_that_failed_is_to_be_asked_for_again() {
    for recovery in RECOVERIES {
        for (op, fault) in [
            (Op::RecordIn, Fault::Fail),
            (Op::CommitTransaction, Fault::Fail),
            (Op::CommitTransaction, Fault::Disconnect),
        ] {
            let shop = Shop::new(recovery).await;
            shop.store.next(op, fault);
            assert_retryable_503(&post_to(&shop.app(Shop::charge_once)).await);
            shop.assert_runs_again().await;
        }
    }
}

/// Unless the handler knows better.
#[tokio::test]
async fn a_refusal_after_a_commit_that_failed_is_sent() {
    for status in [402, 409] {
        let shop = Shop::new(Recovery::Hold).await;
        shop.store.next(Op::CommitTransaction, Fault::Fail);
        let refuses = move |shop: Shop, attempt: Attempt| async move {
            let transaction = shop.begin(&attempt).await;
            shop.commit(&attempt, transaction).await.unwrap_err();
            (StatusCode::from_u16(status).unwrap(), "sold out")
        };
        let first = send(&shop.app(refuses), request()).await;
        assert_eq!((first.status, first.text()), (status, "sold out"));
        shop.assert_runs_again().await;
    }
}

#[tokio::test]
async fn a_commit_that_failed_may_be_tried_again_within_the_handler() {
    let shop = Shop::new(Recovery::Hold).await;
    shop.store.next(Op::CommitTransaction, Fault::Fail);
    let tries_twice = async |shop: Shop, attempt: Attempt| {
        let transaction = shop.begin(&attempt).await;
        shop.commit(&attempt, transaction).await.unwrap_err();
        shop.charge_once(attempt).await
    };
    assert_eq!(post_to(&shop.app(tries_twice)).await.status, 201);
    shop.assert_replays(201, "{\"run\":1}").await;
}

/// Its answer is of something else than a transaction, and is recorded like any other.
#[tokio::test]
async fn a_handler_that_cannot_begin_and_goes_another_way_answers_for_it() {
    for recovery in RECOVERIES {
        let shop = Shop::new(recovery).await;
        shop.store.always(Op::OpenTransaction, Fault::Fail);
        let elsewhere = async |shop: Shop, attempt: Attempt| {
            shop.try_begin(&attempt).await.unwrap_err();
            (StatusCode::CREATED, "done elsewhere").into_response()
        };
        let app = shop.app(elsewhere);
        assert_eq!(post_to(&app).await.status, 201);
        assert_eq!(post_to(&app).await.header("idempotent-replayed"), Some("true"));

        // Or does not wait for that.
        let shop = Shop::new(recovery).await;
        shop.store.always(Op::OpenTransaction, Fault::Stall);
        let elsewhere = async |shop: Shop, attempt: Attempt| {
            assert!(timeout(Duration::from_millis(50), shop.try_begin(&attempt)).await.is_err());
            (StatusCode::CREATED, "done elsewhere").into_response()
        };
        let app = shop.app(elsewhere);
        assert_eq!(post_to(&app).await.status, 201);
        assert_eq!(post_to(&app).await.header("idempotent-replayed"), Some("true"));
    }
}
