//! The guard over real HTTP clients and connections: what they send again by themselves, and what their errors say.

#![allow(clippy::unwrap_used)] // Also in what the tests share.

mod common;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{Rig, TestStore};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use idempotency::outbound::{CallEnd, Decision, Guard, Policy, Provider, Step, StepError};
use idempotency::{Answer, Attempt, Engine, Fingerprint, Held, Key, Operation, ScopeId, Settings};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_idempotency::outbound::{GuardedStep, OutboundLayer};

/// A server in threads of its own, so that it goes on while the client's only thread stands still. It keeps which bodies it has read, and
/// on how many connections.
struct Bank {
    addr: SocketAddr,
    seen: Arc<Mutex<HashMap<String, u32>>>,
    connections: Arc<Mutex<u32>>,
}

#[derive(Clone)]
enum Manner {
    /// Answers on a connection for as long as it is kept open.
    Keep,
    /// Answers the first request, reads the second one whole, and closes.
    CloseOnSecond,
    /// Answers, says that the connection is kept, and closes it at once.
    CloseAfterFirst,
    /// Closes it when it is told, and says when it has.
    CloseWhenTold(Arc<Barrier>),
}

impl Bank {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bank = Self { addr: listener.local_addr().unwrap(), seen: Arc::default(), connections: Arc::default() };
        let (seen, connections) = (Arc::clone(&bank.seen), Arc::clone(&bank.connections));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = Arc::clone(&seen);
                *connections.lock().unwrap() += 1;
                let manner = manner.clone();
                std::thread::spawn(move || serve(&stream.unwrap(), &manner, &seen));
            }
        });
        bank
    }

    fn seen(&self, body: &str) -> u32 {
        self.seen.lock().unwrap().get(body).copied().unwrap_or(0)
    }

    fn url(&self) -> String {
        format!("http://{}/transfers", self.addr)
    }
}

fn serve(mut stream: &TcpStream, manner: &Manner, seen: &Mutex<HashMap<String, u32>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for number in 1.. {
        let Some(body) = read(&mut reader) else { return };
        *seen.lock().unwrap().entry(body).or_default() += 1;
        if number == 2 && matches!(manner, Manner::CloseOnSecond) {
            return;
        }
        if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").is_err() {
            return;
        }
        match manner {
            Manner::Keep | Manner::CloseOnSecond => {}
            Manner::CloseAfterFirst => return,
            Manner::CloseWhenTold(barrier) => {
                barrier.wait();
                stream.shutdown(Shutdown::Both).unwrap();
                barrier.wait();
                return;
            }
        }
    }
}

/// The body of the next request; none at the end.
fn read(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(String::from_utf8(body).unwrap())
}

async fn begin(rig: &Rig) -> Held<TestStore> {
    let engine = Engine::new(rig.store.clone(), Settings::default());
    let operation = Operation::new(ScopeId::global(), Key::parse("k").unwrap(), Fingerprint::of(["payout"]));
    match engine.claim(&operation).await.unwrap() {
        Answer::Run(held) => held,
        Answer::DoNot(why) => panic!("{why:?}"),
    }
}

fn guard(rig: &Rig) -> Guard<TestStore> {
    Guard::new(rig.store.clone(), Provider::new("bank", Duration::from_secs(5)).unwrap(), Policy::Hold).unwrap()
}

/// A client as it comes, but for whether it sends a request again that was not begun.
fn hyper_util(resends: bool) -> Client<HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).retry_canceled_requests(resends).build_http()
}

/// Sends a step through the layer over hyper-util: the answer, or why there is none.
async fn send(
    client: &Client<HttpConnector, Full<Bytes>>,
    rig: &Rig,
    attempt: &Attempt,
    url: &str,
    label: &'static str,
    close_first: Option<Arc<Barrier>>,
) -> Result<Bytes, StepError> {
    let layer = OutboundLayer::new(guard(rig)).not_sent(Error::is_connect);
    let client = client.clone();
    let client = ServiceBuilder::new().layer(layer).service(service_fn(move |request| {
        let (client, close_first) = (client.clone(), close_first.clone());
        async move {
            if let Some(barrier) = close_first {
                close_unnoticed(&barrier).await;
            }
            client.request(request).await
        }
    }));
    let request = Request::post(url).extension(GuardedStep::new(attempt, label).unwrap());
    match client.oneshot(request.body(Full::new(Bytes::from(label))).unwrap()).await {
        Ok(response) => Ok(response.into_body().collect().await.unwrap().to_bytes()),
        Err(error) => match error {
            tower_idempotency::outbound::OutboundError::Client { step, .. } => Err(step),
            other => panic!("{other:?}"),
        },
    }
}

/// Has the server close its connection while this thread, the only one of the client, stands still. That and the timer are then noticed in one
/// go, and the test goes on before the connection's own task does: the next request is handed to one that is at its end and does not know
/// it.
async fn close_unnoticed(barrier: &Barrier) {
    // The connection goes back to its pool.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut timer = pin!(tokio::time::sleep(Duration::from_millis(20)));
    assert!(futures_util::poll!(&mut timer).is_pending());
    barrier.wait();
    barrier.wait();
    std::thread::sleep(Duration::from_millis(40));
    timer.await;
}

fn is_unknown<T>(got: &Result<T, StepError>) -> bool {
    matches!(got, Err(StepError::OutcomeUnknown { .. }))
}

/// A second request on a kept connection was read whole when the connection broke: whether it is set to or not, hyper-util does not
/// send it again.
#[tokio::test]
async fn hyper_util_never_sends_a_request_again_that_it_has_begun_to_write() {
    for resends in [true, false] {
        let (rig, bank, client) = (Rig::new(), Bank::start(Manner::CloseOnSecond), hyper_util(resends));
        let held = begin(&rig).await;
        assert_eq!(send(&client, &rig, held.attempt(), &bank.url(), "first", None).await.unwrap(), "done");
        let second = send(&client, &rig, held.attempt(), &bank.url(), "second", None).await;
        assert!(is_unknown(&second), "{second:?}");
        assert_eq!((bank.seen("first"), bank.seen("second"), *bank.connections.lock().unwrap()), (1, 1, 1));
    }
}

/// The connection was closed while it lay in the pool, and the client has not noticed yet. What it then sends again was never written: the
/// bank sees it once. Switched off, a call that was never made is of unknown outcome.
#[tokio::test]
async fn what_hyper_util_sends_again_was_never_sent() {
    for resends in [true, false] {
        let told = Arc::new(Barrier::new(2));
        let (rig, bank, client) =
            (Rig::new(), Bank::start(Manner::CloseWhenTold(Arc::clone(&told))), hyper_util(resends));
        let held = begin(&rig).await;
        send(&client, &rig, held.attempt(), &bank.url(), "first", None).await.unwrap();
        let second = send(&client, &rig, held.attempt(), &bank.url(), "second", Some(told)).await;
        if resends {
            assert_eq!((second.unwrap(), bank.seen("second")), (Bytes::from("done"), 1));
        } else {
            assert!(is_unknown(&second), "{second:?}");
            assert_eq!(bank.seen("second"), 0);
        }
        assert_eq!(bank.seen("first"), 1);
    }
}

/// The same race, as it falls out: no request is ever seen twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_connections_that_close_at_any_moment_no_request_is_seen_twice() {
    let (bank, client) = (Bank::start(Manner::CloseAfterFirst), hyper_util(true));
    let mut done = 0;
    for number in 0..300 {
        let request = Request::post(bank.url()).body(Full::new(Bytes::from(number.to_string()))).unwrap();
        done += u32::from(client.request(request).await.is_ok());
    }
    let seen = bank.seen.lock().unwrap();
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert!(done > 0 && seen.len() as u32 >= done);
}

#[tokio::test]
async fn only_a_connection_that_was_never_made_is_certain() {
    let (rig, client) = (Rig::new(), hyper_util(true));
    let held = begin(&rig).await;
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (label, url) in [("refused", format!("http://{nobody}/")), ("no-name", "http://nobody.invalid/".to_owned())] {
        let got = send(&client, &rig, held.attempt(), &url, label, None).await;
        assert!(matches!(got, Err(StepError::NotDone(_))), "{got:?}");
    }
}

/// `reqwest` through the function.
async fn with_reqwest(
    client: &reqwest::Client,
    guard: &Guard<TestStore>,
    attempt: &Attempt,
    url: &str,
    label: &'static str,
) -> Result<Decision, StepError> {
    let step = Step::new(label, Fingerprint::of([url, label])).unwrap();
    let outcome = guard.call(attempt, &step, |call| async move {
        // The reference, so that the bank can be asked about it.
        let request = client.post(url).header("Reference", call.reference().as_str()).body(label);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return CallEnd::NotDone(error.to_string()),
            Err(error) => return CallEnd::Unknown(error.to_string()),
        };
        let status = response.status().as_u16();
        match response.bytes().await {
            Ok(body) => guard.provider().ending(status, &body, body.clone()),
            Err(error) => CallEnd::Unknown(error.to_string()),
        }
    });
    Ok(outcome.await?.decision)
}

fn reqwest() -> reqwest::ClientBuilder {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never())
}

#[tokio::test]
async fn reqwest_neither() {
    let done = || Decision::Done(Bytes::from("done"));
    let (rig, client) = (Rig::new(), reqwest().build().unwrap());
    let (guard, held) = (guard(&rig), begin(&rig).await);

    let bank = Bank::start(Manner::CloseOnSecond);
    assert_eq!(with_reqwest(&client, &guard, held.attempt(), &bank.url(), "a").await.unwrap(), done());
    let broken = with_reqwest(&client, &guard, held.attempt(), &bank.url(), "b").await;
    assert!(is_unknown(&broken), "{broken:?}");
    assert_eq!((bank.seen("a"), bank.seen("b"), *bank.connections.lock().unwrap()), (1, 1, 1));

    let told = Arc::new(Barrier::new(2));
    let bank = Bank::start(Manner::CloseWhenTold(Arc::clone(&told)));
    assert_eq!(with_reqwest(&client, &guard, held.attempt(), &bank.url(), "c").await.unwrap(), done());
    close_unnoticed(&told).await;
    assert_eq!(with_reqwest(&client, &guard, held.attempt(), &bank.url(), "d").await.unwrap(), done());
    assert_eq!((bank.seen("c"), bank.seen("d")), (1, 1));

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = with_reqwest(&client, &guard, held.attempt(), &format!("http://{nobody}/"), "e").await;
    assert!(matches!(refused, Err(StepError::NotDone(_))), "{refused:?}");
}

#[tokio::test]
async fn reqwest_without_a_pool_has_no_connection_to_send_again_on() {
    let (rig, bank) = (Rig::new(), Bank::start(Manner::Keep));
    let client = reqwest().pool_max_idle_per_host(0).build().unwrap();
    let (guard, held) = (guard(&rig), begin(&rig).await);
    for label in ["a", "b", "c"] {
        let _ = with_reqwest(&client, &guard, held.attempt(), &bank.url(), label).await.unwrap();
    }
    assert_eq!(*bank.connections.lock().unwrap(), 3);
}
