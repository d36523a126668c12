//! Responses that are not simply a handful of bytes: streams, trailers, bodies that are broken off, and clients that
//! leave in the middle.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use common::{Rig, TestStore, charge, send};
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, StreamBody};
use idempotency::faults::{Fault, Op};
use idempotency::{Recovery, State};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_idempotency::{IdempotencyLayer, StreamThrough, Verdict};

type Chunk = Result<&'static str, io::Error>;

/// An app whose handler answers with a stream of server-sent events, and the end of the stream where they are put in.
fn live(rig: &Rig, layer: IdempotencyLayer<TestStore>) -> (Router, mpsc::Sender<Chunk>) {
    live_as(rig, layer, StatusCode::OK, "text/event-stream")
}

fn live_as(
    rig: &Rig,
    layer: IdempotencyLayer<TestStore>,
    status: StatusCode,
    media_type: &'static str,
) -> (Router, mpsc::Sender<Chunk>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let app = rig.app(layer, move |_| {
        let receiver: mpsc::Receiver<Chunk> = receiver.lock().unwrap().take().unwrap();
        let chunks = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
        (status, [(CONTENT_TYPE, media_type)], Body::from_stream(chunks)).into_response()
    });
    (app, sender)
}

/// Sends a request and takes the head of its answer.
async fn head(app: &Router, key: &str) -> http::Response<Body> {
    let answer = app.clone().oneshot(charge(key));
    tokio::time::timeout(Duration::from_secs(5), answer).await.expect("the head comes before the body ends").unwrap()
}

/// The next piece of data.
async fn next(response: &mut http::Response<Body>) -> Bytes {
    let frame = tokio::time::timeout(Duration::from_secs(5), response.body_mut().frame()).await;
    frame.expect("it comes at once").unwrap().unwrap().into_data().unwrap()
}

/// A body of unknown length.
fn chunks(chunks: impl IntoIterator<Item = Chunk, IntoIter: Send + 'static>) -> Body {
    Body::from_stream(stream::iter(chunks))
}

fn broken() -> Chunk {
    Err(io::Error::other("the upstream hung up"))
}

#[tokio::test]
async fn server_sent_events_are_passed_on_as_they_come() {
    for media_type in ["text/event-stream", "text/event-stream; charset=utf-8", "Text/Event-Stream"] {
        let rig = Rig::new();
        let (app, events) = live_as(&rig, rig.layer(), StatusCode::OK, media_type);
        let mut response = head(&app, "k1").await;
        assert_eq!(response.headers()[CONTENT_TYPE], media_type);
        events.send(Ok("data: 1\n\n")).await.unwrap();
        assert_eq!(next(&mut response).await, "data: 1\n\n");
        assert_eq!(rig.state("k1").await, Some(State::InFlight));
        assert_eq!(send(&app, charge("k1")).await.problem(), Some("request-in-flight"));
        events.send(Ok("data: 2\n\n")).await.unwrap();
        assert_eq!(next(&mut response).await, "data: 2\n\n");
        drop(events);
        assert!(response.body_mut().frame().await.is_none());
        assert_eq!(rig.state("k1").await, Some(State::Tombstone), "recorded before the reader learns of the end");
        let again = send(&app, charge("k1")).await;
        assert_eq!((again.status, again.problem()), (410, Some("response-not-kept")));
        assert_eq!(rig.runs.count(), 1);
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_that_passes_the_limit_is_streamed() {
    let rig = Rig::new();
    let (app, sender) = live_as(&rig, rig.layer().max_response(5), StatusCode::CREATED, "text/plain");
    let first = tokio::spawn(async move { (head(&app, "k1").await, app) });
    for chunk in ["12", "345", "6"] {
        sender.send(Ok(chunk)).await.unwrap();
    }
    let (mut response, app) = first.await.unwrap();
    for chunk in ["12", "345", "6"] {
        assert_eq!(next(&mut response).await, chunk);
    }
    sender.send(Ok("789")).await.unwrap();
    assert_eq!(next(&mut response).await, "789");
    assert_eq!(rig.state("k1").await, Some(State::InFlight));
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
    assert_eq!(rig.state("k1").await, Some(State::Tombstone));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, &again.json()["first_status"]), (410, &201.into()));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_body_of_unknown_length_within_the_limit_is_replayed_whole() {
    let rig = Rig::new();
    let app = rig.app(rig.layer().max_response(5), |_| chunks(["1", "", "23", "45"].map(Ok)));
    let first = send(&app, charge("k1")).await;
    let again = send(&app, charge("k1")).await;
    assert_eq!((first.text(), again.text(), again.is_replay()), ("12345", "12345", true));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_body_that_says_that_it_is_too_long_is_not_read_first() {
    let rig = Rig::new();
    let app = rig.app(rig.layer().max_response(5), |_| Body::from("123456"));
    let mut response = head(&app, "k1").await;
    assert_eq!(response.headers()["content-length"], "6", "its length stays known");
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(6));
    assert_eq!(next(&mut response).await, "123456");
    assert!(response.body_mut().frame().await.is_none());
    assert_eq!(rig.state("k1").await, Some(State::Tombstone));
}

#[tokio::test]
async fn a_handler_can_say_that_its_answer_is_to_be_streamed() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let mut response = chunks([Ok("short")]).into_response();
        response.extensions_mut().insert(StreamThrough);
        response
    });
    let first = send(&app, charge("k1")).await;
    assert_eq!((first.text(), first.extensions.get::<StreamThrough>()), ("short", None));
    let again = send(&app, charge("k1")).await;
    assert_eq!((again.status, again.problem()), (410, Some("response-not-kept")));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_handler_can_have_a_stream_that_never_ends_passed_on() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let forever = stream::once(async { Ok::<_, Infallible>("first") }).chain(stream::pending());
        let mut response = Body::from_stream(forever).into_response();
        response.extensions_mut().insert(StreamThrough);
        response
    });
    assert_eq!(next(&mut head(&app, "k1").await).await, "first");
}

/// A service over `layer`, without a framework, whose answers have these chunks and a trailer.
fn with_trailers(
    rig: &Rig,
    layer: IdempotencyLayer<TestStore>,
    status: StatusCode,
    chunks: &'static [&'static str],
) -> Router {
    let runs = rig.runs.clone();
    let inner = service_fn(move |_: Request<Body>| {
        runs.begin();
        let trailers =
            HeaderMap::from_iter([(http::HeaderName::from_static("x-checksum"), HeaderValue::from_static("1f"))]);
        let data = chunks.iter().map(|chunk| Frame::data(Bytes::from_static(chunk.as_bytes())));
        let frames: Vec<_> = data.chain([Frame::trailers(trailers)]).map(Ok::<_, Infallible>).collect();
        let mut response = http::Response::new(StreamBody::new(stream::iter(frames)));
        *response.status_mut() = status;
        std::future::ready(Ok::<_, Infallible>(response))
    });
    Router::new().fallback_service(layer.layer(inner))
}

#[tokio::test]
async fn trailers_reach_the_first_client_and_make_the_answer_not_replayable() {
    for (limit, chunks) in [(100, &["1", "2"][..]), (100, &[]), (1, &["1", "2"])] {
        let rig = Rig::new();
        let app = with_trailers(&rig, rig.layer().max_response(limit), StatusCode::CREATED, chunks);
        let first = send(&app, charge("k1")).await;
        assert_eq!(first.text(), chunks.concat());
        assert_eq!(first.trailers.as_ref().unwrap()["x-checksum"], "1f");
        let again = send(&app, charge("k1")).await;
        assert_eq!((again.status, again.problem()), (410, Some("response-not-kept")));
        assert_eq!(rig.runs.count(), 1);
    }
}

#[tokio::test]
async fn a_failure_with_trailers_is_in_doubt_without_a_response() {
    let rig = Rig::new();
    let app = with_trailers(&rig, rig.layer(), StatusCode::BAD_GATEWAY, &["x"]);
    let first = send(&app, charge("k1")).await;
    assert_eq!((first.status, first.trailers.unwrap().len()), (502, 1));
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("outcome-unknown"));
    assert_eq!(rig.runs.count(), 1);
}

/// What a client gets of an answer that is broken off.
async fn broken_off(app: &Router, key: &str) -> (u16, Vec<u8>) {
    let (parts, mut body) = app.clone().oneshot(charge(key)).await.unwrap().into_parts();
    let mut got = Vec::new();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => got.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(_)) => break,
            None => panic!("it ended as if it were whole: {got:?}"),
        }
    }
    assert!(body.frame().await.is_none());
    (parts.status.as_u16(), got)
}

#[tokio::test]
async fn a_short_body_that_the_handler_breaks_off_is_in_doubt_or_free() {
    for recovery in [Recovery::Hold, Recovery::Rerun] {
        let rig = Rig::new();
        let layer = rig.layer().recovery(recovery);
        let app = rig.app(layer, |_| (StatusCode::CREATED, chunks([Ok("1"), Ok("2"), broken()])));
        assert_eq!(broken_off(&app, "k1").await, (201, b"12".to_vec()), "the client is not told that it was all");
        match recovery {
            Recovery::Hold => {
                let again = send(&app, charge("k1")).await;
                assert_eq!((again.status, again.problem()), (409, Some("outcome-unknown")));
                assert_eq!(rig.runs.count(), 1);
            }
            Recovery::Rerun => {
                assert_eq!(rig.state("k1").await, Some(State::Released));
                broken_off(&app, "k1").await;
                assert_eq!(rig.runs.count(), 2);
            }
        }
    }
}

#[tokio::test]
async fn a_stream_that_the_handler_breaks_off_is_in_doubt_or_stays_executed() {
    for (recovery, state, problem) in
        [(Recovery::Hold, State::InDoubt, "outcome-unknown"), (Recovery::Rerun, State::Tombstone, "response-not-kept")]
    {
        let rig = Rig::new();
        let layer = rig.layer().recovery(recovery).max_response(2);
        let app = rig.app(layer, |_| (StatusCode::CREATED, chunks([Ok("12"), Ok("3"), broken()])));
        assert_eq!(broken_off(&app, "k1").await, (201, b"123".to_vec()));
        assert_eq!(rig.state("k1").await, Some(state), "recorded before the reader learns of the end");
        assert_eq!(send(&app, charge("k1")).await.problem(), Some(problem));
        assert_eq!(rig.runs.count(), 1);
    }
}

#[tokio::test]
async fn under_rerun_a_stream_is_executed_before_its_first_byte() {
    for (recovery, state) in [(Recovery::Hold, State::InFlight), (Recovery::Rerun, State::Tombstone)] {
        let rig = Rig::new();
        let (app, _events) = live(&rig, rig.layer().recovery(recovery));
        let response = head(&app, "k1").await;
        assert_eq!(rig.state("k1").await, Some(state));
        drop(response);
    }
}

#[tokio::test]
async fn a_stream_whose_status_or_verdict_says_otherwise_is_settled_before_its_first_byte() {
    let rig = Rig::new();
    let (app, _events) = live_as(&rig, rig.layer(), StatusCode::BAD_GATEWAY, "text/event-stream");
    let _failed = head(&app, "k1").await;
    assert_eq!(rig.state("k1").await, Some(State::InDoubt));
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("outcome-unknown"));

    let (app, _events) = live_as(&rig, rig.layer(), StatusCode::TOO_MANY_REQUESTS, "text/event-stream");
    let _refused = head(&app, "k2").await;
    assert_eq!(rig.state("k2").await, Some(State::Released));

    let app = rig.app(rig.layer(), |_| {
        let mut response = chunks([Ok("x")]).into_response();
        response.extensions_mut().insert(StreamThrough);
        response.extensions_mut().insert(Verdict::InDoubt);
        response
    });
    let _unsure = head(&app, "k3").await;
    assert_eq!(rig.state("k3").await, Some(State::InDoubt));
}

/// A body that panics after its first chunk, if it is polled again.
struct PanickingBody(usize);

impl http_body::Body for PanickingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 += 1;
        match self.0 {
            1 => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part"))))),
            2 => panic!("the body broke"),
            // As if nothing had happened: whoever asks again would take it for whole.
            _ => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[tokio::test]
async fn a_stream_that_panics_is_broken_off_and_in_doubt() {
    let rig = Rig::new();
    let app = rig.app(rig.layer().max_response(1), |_| Response::new(Body::new(PanickingBody(0))));
    assert_eq!(broken_off(&app, "k1").await, (200, b"part".to_vec()));
    assert_eq!(rig.state("k1").await, Some(State::InDoubt));
    // Nobody reads it any more: the same in the background.
    let (app, events) = live(&rig, rig.layer());
    drop(head(&app, "k2").await);
    events.send(broken()).await.unwrap();
    rig.until("k2", State::InDoubt).await;
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_has_the_rest_drained_and_recorded() {
    let rig = Rig::new();
    let layer = rig.layer();
    let (app, events) = live(&rig, layer.clone());
    let mut response = head(&app, "k1").await;
    events.send(Ok("data: 1\n\n")).await.unwrap();
    next(&mut response).await;
    drop(response);
    // The channel holds one chunk: more can only be put in because somebody takes them out.
    for _ in 0..10 {
        events.send(Ok("data: x\n\n")).await.unwrap();
    }
    assert_eq!(rig.state("k1").await, Some(State::InFlight), "it is not over");
    assert!(!layer.engine().tracker().is_empty(), "a shutdown waits for it");
    drop(events);
    rig.until("k1", State::Tombstone).await;
    assert!(layer.engine().drain(Duration::from_secs(5)).await);
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("response-not-kept"));
    assert_eq!(rig.runs.count(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_has_it_all_drained() {
    let rig = Rig::new();
    let app = rig.app(rig.layer().max_response(1), |_| chunks(["12", "3", "4"].map(Ok)));
    drop(head(&app, "k1").await);
    rig.until("k1", State::Tombstone).await;
    // Whole in memory already: there is nothing to drain, and the answer is kept.
    let app = rig.app(rig.layer(), |_| chunks(["12", "3", "4"].map(Ok)));
    drop(head(&app, "k2").await);
    assert_eq!(rig.state("k2").await, Some(State::Completed));
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_stream_is_drained_within_a_bound_and_is_then_in_doubt() {
    for period in [Duration::from_millis(100), Duration::from_secs(3600)] {
        let rig = Rig::new();
        let ended = Arc::new(AtomicBool::new(false));
        let guard = Arc::clone(&ended);
        let app = rig.app(rig.layer(), move |_| {
            let guard = Dropped(Arc::clone(&guard));
            let ticks = stream::unfold(guard, move |guard| async move {
                tokio::time::sleep(period).await;
                Some((Ok::<_, Infallible>("data: tick\n\n"), guard))
            });
            ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(ticks)).into_response()
        });
        drop(head(&app, "k1").await);
        tokio::time::sleep(Duration::from_millis(29_900)).await;
        assert_eq!((rig.state("k1").await, ended.load(Ordering::SeqCst)), (Some(State::InFlight), false));
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!((rig.state("k1").await, ended.load(Ordering::SeqCst)), (Some(State::InDoubt), true));
        assert_eq!(send(&app, charge("k1")).await.problem(), Some("outcome-unknown"));
        assert_eq!(rig.runs.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recording_that_is_under_way_at_the_bound_goes_on() {
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| {
        let last = stream::once(async {
            tokio::time::sleep(Duration::from_millis(29_700)).await;
            Ok::<_, Infallible>("data: last\n\n")
        });
        ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(last)).into_response()
    });
    drop(head(&app, "k1").await);
    rig.store.next(Op::Complete, Fault::Stall);
    tokio::time::sleep(Duration::from_millis(29_900)).await;
    assert_eq!(rig.state("k1").await, Some(State::InFlight));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(send(&app, charge("k1")).await.problem(), Some("response-not-kept"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_renewed_as_long_as_it_is_read() {
    let rig = Rig::new();
    let (app, events) = live(&rig, rig.layer());
    let mut response = head(&app, "k1").await;
    for n in 1..=10 {
        tokio::time::sleep(Duration::from_secs(12)).await;
        rig.clock.advance(Duration::from_secs(12));
        events.send(Ok("data: tick\n\n")).await.unwrap();
        next(&mut response).await;
        assert_eq!(rig.state("k1").await, Some(State::InFlight), "after {} s", 12 * n);
    }
    drop(events);
    assert!(response.body_mut().frame().await.is_none());
    let renewals = rig.store.calls(Op::Renew);
    assert!(renewals >= 10);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.store.calls(Op::Renew), renewals, "and no longer");
    assert_eq!(rig.state("k1").await, Some(State::Tombstone));
}

#[tokio::test]
async fn a_long_body_of_known_length_is_recorded_over_a_connection() {
    // A server knows from the length when it has sent all, and need not ask the body whether it is at its end.
    const LENGTH: usize = 1024 * 1024;
    let rig = Rig::new();
    let app = rig.app(rig.layer(), |_| vec![b'x'; LENGTH]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = b"POST /charge HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k1\r\nContent-Length: 0\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut got = Vec::new();
    let whole =
        |got: &[u8]| got.windows(4).position(|w| w == b"\r\n\r\n").is_some_and(|at| got.len() == at + 4 + LENGTH);
    while !whole(&got) {
        assert_ne!(client.read_buf(&mut got).await.unwrap(), 0);
    }
    rig.until("k1", State::Tombstone).await;
    got.clear();
    client.write_all(request).await.unwrap();
    while !got.ends_with(b"}") {
        assert_ne!(client.read_buf(&mut got).await.unwrap(), 0);
    }
    assert!(got.starts_with(b"HTTP/1.1 410"), "on the same connection");
    server.abort();
}

#[tokio::test]
async fn a_verdict_said_by_the_handler_counts_for_a_body_that_is_broken_off() {
    for (verdict, state) in [(Verdict::Record, State::Tombstone), (Verdict::InDoubt, State::InDoubt)] {
        let rig = Rig::new();
        let layer = rig.layer().recovery(Recovery::Rerun);
        let app = rig.app(layer, move |_| (axum::Extension(verdict), chunks([Ok("1"), broken()])));
        broken_off(&app, "k1").await;
        assert_eq!(rig.state("k1").await, Some(state));
        send(&app, charge("k1")).await;
        assert_eq!(rig.runs.count(), 1, "it does not run again");
    }
    // And for one that is passed on as it comes.
    for (verdict, state) in [(None, State::InDoubt), (Some(Verdict::Record), State::Tombstone)] {
        let rig = Rig::new();
        let app = rig.app(rig.layer().max_response(2), move |_| {
            let mut response = chunks([Ok("12"), Ok("3"), broken()]).into_response();
            verdict.map(|verdict| response.extensions_mut().insert(verdict));
            response
        });
        broken_off(&app, "k1").await;
        assert_eq!(rig.state("k1").await, Some(state), "{verdict:?}");
    }
}
