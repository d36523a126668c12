//! Fencing tokens of callers who hold a lease elsewhere, on their way in and out.
#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

mod common;

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use common::{KEY, Rig, send};
use http::{Request, Response};
use idempotency::{FenceTicket, FencingToken, HeldLease, LeaseSettings, Leaser, Nonce, Resource, State, TokenSource};
use idempotency_memory::MemoryLeases;
use tower::{Layer as _, ServiceExt as _};
use tower_idempotency::{FENCING_TOKEN, FencingLayer, ForwardFencingToken, InvalidFencingToken, Refusal};

const HOLDER: Nonce = Nonce::from_bytes([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn ticket(token: u64) -> FenceTicket {
    FenceTicket { token: FencingToken::new(token).unwrap(), holder: None, source: TokenSource::LEASES }
}

/// Says what it was given.
fn told(rig: &Rig, layer: FencingLayer) -> Router {
    let runs = rig.runs.clone();
    let handler = async move |request: Request<Body>| {
        runs.begin();
        let (ticket, token) = (request.extensions().get::<FenceTicket>(), request.extensions().get::<FencingToken>());
        assert_eq!(ticket.map(|ticket| ticket.token), token.copied());
        format!("{ticket:?}")
    };
    Router::new().fallback(handler).layer(layer)
}

fn with_lines(lines: &[&str]) -> Request<Body> {
    let mut request = Request::post("/write").body(Body::empty()).unwrap();
    for line in lines {
        request.headers_mut().append(FENCING_TOKEN, line.parse().unwrap());
    }
    request
}

async fn held() -> HeldLease<MemoryLeases> {
    let leaser = Leaser::new(MemoryLeases::new(), LeaseSettings::default());
    leaser.try_acquire(&Resource::parse("account/7").unwrap()).await.unwrap().yours().unwrap()
}

mod inbound {
    use super::*;

    #[tokio::test]
    async fn a_handler_is_given_the_ticket_of_its_caller() {
        let rig = Rig::new();
        let app = told(&rig, FencingLayer::new());
        let full = FenceTicket { holder: Some(HOLDER), source: TokenSource::new(7), ..ticket(1_800_000_000_000_000) };
        let expected = [
            ("34", ticket(34)),
            ("9007199254740991", ticket(FencingToken::MAX)),
            ("34;src=0", FenceTicket { source: TokenSource::DATABASE, ..ticket(34) }),
            ("1800000000000000;holder=:AAECAwQFBgcICQoLDA0ODw==:;src=7", full),
            ("1800000000000000;src=7;holder=:AAECAwQFBgcICQoLDA0ODw==:;later=?1", full),
        ];
        for (line, ticket) in expected {
            let answer = send(&app, with_lines(&[line])).await;
            assert_eq!((answer.status, answer.text()), (200, format!("{:?}", Some(ticket)).as_str()), "{line}");
        }
    }

    #[tokio::test]
    async fn a_missing_token_is_428_where_it_is_required() {
        let rig = Rig::new();
        let answer = send(&told(&rig, FencingLayer::new()), with_lines(&[])).await;
        assert_eq!((answer.status, answer.problem()), (428, Some("fencing-token-missing")));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!((answer.header("retry-after"), rig.runs.count()), (None, 0));

        let answer = send(&told(&rig, FencingLayer::optional()), with_lines(&[])).await;
        assert_eq!((answer.status, answer.text()), (200, "None"));
    }

    #[tokio::test]
    async fn what_is_no_token_is_400_also_where_none_is_required() {
        let rig = Rig::new();
        let malformed = ["", "0", "-1", "9007199254740992", "1.5", "\"34\"", "x", "34, 35", "1e3", "?1", "34;", "034"];
        let several: [&[&str]; 2] = [&["34", "34"], &["34", "35"]];
        let holders = ["34;holder=:AAE=:", "34;holder=\"x\"", "34;holder", "34;holder=1"];
        let sources = ["34;src=-1", "34;src=65536", "34;src=x", "34;src"];
        let cases = malformed
            .iter()
            .map(|line| (vec![*line], InvalidFencingToken::Malformed))
            .chain(several.map(|lines| (lines.to_vec(), InvalidFencingToken::SeveralLines)))
            .chain(holders.map(|line| (vec![line], InvalidFencingToken::Holder)))
            .chain(sources.map(|line| (vec![line], InvalidFencingToken::Source)));
        for (lines, fault) in cases {
            for layer in [FencingLayer::new(), FencingLayer::optional()] {
                let answer = send(&told(&rig, layer), with_lines(&lines)).await;
                assert_eq!((answer.status, answer.problem()), (400, Some("fencing-token-invalid")), "{lines:?}");
                assert_eq!(answer.extensions.get::<Refusal>(), Some(&Refusal::FencingTokenInvalid(fault)), "{lines:?}");
            }
        }
        assert_eq!(rig.runs.count(), 0);
    }

    #[tokio::test]
    async fn inside_of_a_key_a_refusal_is_not_the_outcome() {
        let rig = Rig::new();
        let app = told(&rig, FencingLayer::new()).layer(rig.layer());
        let keyed = |lines: &[&str]| {
            let mut request = with_lines(lines);
            request.headers_mut().insert(KEY, "k".parse().unwrap());
            request
        };
        for (lines, status) in [(&[] as &[&str], 428), (&["x"], 400)] {
            assert_eq!(send(&app, keyed(lines)).await.status, status);
            assert_eq!(rig.state("k").await, Some(State::Released));
        }
        assert_eq!(send(&app, keyed(&["34"])).await.status, 200);
        // The caller came back under a newer lease: it is the same request.
        let again = send(&app, keyed(&["35"])).await;
        assert!(again.is_replay());
        assert_eq!(rig.runs.count(), 1);
    }

    #[tokio::test]
    async fn outside_of_a_key_it_refuses_before_the_store_is_asked() {
        let rig = Rig::new();
        let app = FencingLayer::new().layer(rig.counting(rig.layer()));
        let request = Request::post("/write").header(KEY, "k").body(Body::empty()).unwrap();
        assert_eq!(send(&app, request).await.status, 428);
        assert_eq!((rig.store.all_calls(), rig.runs.count()), (0, 0));
    }
}

mod outbound {
    use super::*;

    /// The headers that the server gets.
    async fn forwarded(request: Request<Body>) -> Vec<String> {
        let client = tower::service_fn(async |request: Request<Body>| {
            let lines = request.headers().get_all(FENCING_TOKEN).iter();
            Ok::<_, Infallible>(Response::new(lines.map(|line| line.to_str().unwrap().to_owned()).collect()))
        });
        ForwardFencingToken::new().layer(client).oneshot(request).await.unwrap().into_body()
    }

    #[tokio::test]
    async fn a_ticket_is_forwarded_whole() {
        let tickets = [
            (ticket(34), "34"),
            (FenceTicket { source: TokenSource::new(7), ..ticket(34) }, "34;src=7"),
            (FenceTicket { holder: Some(HOLDER), ..ticket(34) }, "34;holder=:AAECAwQFBgcICQoLDA0ODw==:"),
        ];
        for (ticket, line) in tickets {
            let mut request = with_lines(&["1"]);
            request.extensions_mut().insert(ticket);
            assert_eq!(forwarded(request).await, [line]);
        }
    }

    #[tokio::test]
    async fn a_lease_is_asked_for_its_token_when_the_request_is_sent() {
        let lease = held().await;
        let mut request = with_lines(&[]);
        request.extensions_mut().insert(lease.view());
        // Something older beside it does not count.
        request.extensions_mut().insert(ticket(1));
        let before = lease.token().unwrap();
        let raised = lease.raise_above(before).await.unwrap();
        let [line] = &forwarded(request).await[..] else { panic!("one line") };
        assert!(line.starts_with(&format!("{raised};holder=:")), "{line}");
    }

    #[tokio::test]
    async fn a_lost_lease_forwards_nothing() {
        let lease = held().await;
        let mut request = with_lines(&["34"]);
        request.extensions_mut().insert(lease.view());
        lease.release().await.unwrap();
        assert!(forwarded(request).await.is_empty(), "not even what was set by hand");
    }

    #[tokio::test]
    async fn a_request_that_says_nothing_of_a_lease_is_left_alone() {
        assert_eq!(forwarded(with_lines(&["34"])).await, ["34"]);
        assert!(forwarded(with_lines(&[])).await.is_empty());
    }

    #[tokio::test]
    async fn what_is_forwarded_arrives() {
        let rig = Rig::new();
        let service = ForwardFencingToken::new().layer(told(&rig, FencingLayer::new()));
        let lease = held().await;
        let mut request = with_lines(&[]);
        request.extensions_mut().insert(lease.view());
        // A client's extensions do not travel; what the handler sees is from the header.
        let answer = send(&service, request).await;
        assert_eq!(answer.text(), format!("{:?}", Some(lease.ticket().unwrap())));
    }
}
