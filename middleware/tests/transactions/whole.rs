//! What is recorded of a whole response, and how one is made.

use std::convert::Infallible;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::StreamBody;
use idempotency::transaction;
use idempotency::{Recovery, State};
use tower_idempotency::{Attempt, SetCookie, WholeResponse};

use crate::shop::{RECOVERIES, Shop, post_to};

/// A handler that charges and says this.
fn commits(
    response: Response<Bytes>,
) -> impl Fn(Shop, Attempt) -> std::pin::Pin<Box<dyn Future<Output = Response> + Send>> + Clone + Send + Sync + 'static
{
    move |shop, attempt| {
        let response = WholeResponse::new(response.clone());
        Box::pin(async move {
            let transaction = shop.begin(&attempt).await;
            transaction::commit(&shop.store, &attempt, transaction, response).await.unwrap().into_response()
        })
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_sent_once_and_not_kept() {
    for recovery in RECOVERIES {
        for (length, kept) in [(1000, true), (1001, false), (40_000, false)] {
            let shop = Shop::new(recovery).await;
            let response = Response::builder().status(201).header("location", "/charges/1");
            let handler = commits(response.body(vec![b'x'; length].into()).unwrap());
            let app = shop.app_in(shop.layer().max_response(1000), handler);
            let first = post_to(&app).await;
            assert_eq!((first.status, first.body.len()), (201, length));
            let duplicate = post_to(&app).await;
            if kept {
                assert_eq!((duplicate.status, duplicate.body.len(), duplicate.is_replay()), (201, length, true));
            } else {
                assert_eq!((duplicate.status, duplicate.problem()), (410, Some("response-not-kept")), "{length}");
                assert_eq!(shop.state().await, Some(State::Tombstone));
            }
            assert_eq!((shop.charges().await, shop.runs.count()), (1, 1));
        }
    }
}

/// What the layer never stores is not stored here either.
#[tokio::test]
async fn headers_are_kept_as_the_layer_keeps_them() {
    let response = Response::builder()
        .status(201)
        .header("set-cookie", "a=1")
        .header("x-request-id", "7")
        .header("etag", "\"1\"")
        .header("link", "<a>")
        .header("link", "<b>");
    let response = response.body(Bytes::from_static(b"\x00\xff")).unwrap();
    for (setting, cookie) in [(SetCookie::NeverStored, None), (SetCookie::StoredAndReplayed, Some("a=1"))] {
        let shop = Shop::new(Recovery::Hold).await;
        let app = shop.app_in(shop.layer().set_cookie(setting), commits(response.clone()));
        let first = post_to(&app).await;
        assert_eq!((first.header("set-cookie"), first.header("x-request-id")), (Some("a=1"), Some("7")));
        let replay = post_to(&app).await;
        assert_eq!((replay.header("set-cookie"), replay.header("x-request-id")), (cookie, None));
        assert_eq!((replay.header("etag"), &replay.body[..]), (Some("\"1\""), &b"\x00\xff"[..]));
        assert_eq!(replay.headers.get_all("link").iter().collect::<Vec<_>>(), ["<a>", "<b>"]);
        assert!(replay.is_replay() && !first.is_replay());
    }
}

#[tokio::test]
async fn a_response_is_read_to_its_end() {
    let chunks = [Ok::<_, Infallible>(Frame::data(Bytes::from("one "))), Ok(Frame::data(Bytes::from("two")))];
    let body = StreamBody::new(futures_util::stream::iter(chunks));
    let response = Response::builder().status(202).header("etag", "1").body(body).unwrap();
    let whole = WholeResponse::read(response).await.unwrap().into_response::<Bytes>();
    assert_eq!(
        (whole.status(), &whole.headers()["etag"], &whole.body()[..]),
        (StatusCode::ACCEPTED, &"1".parse().unwrap(), &b"one two"[..])
    );

    let broken = StreamBody::new(futures_util::stream::iter([Ok(Frame::data(Bytes::from("one"))), Err("no more")]));
    assert_eq!(WholeResponse::read(Response::new(broken)).await.unwrap_err(), "no more");
}

#[test]
fn json_says_what_it_is() {
    let whole = WholeResponse::json(StatusCode::CREATED, &[1, 2]).unwrap().into_response::<Bytes>();
    assert_eq!((whole.status(), &whole.body()[..]), (StatusCode::CREATED, &b"[1,2]"[..]));
    assert_eq!(whole.headers()["content-type"], "application/json");
    let unwritable = std::collections::HashMap::from([((1, 2), 3)]);
    WholeResponse::json(StatusCode::CREATED, &unwritable).unwrap_err();
}
