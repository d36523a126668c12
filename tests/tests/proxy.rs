//! The TCP proxy itself, in front of a server that repeats every line.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idempotency_testbed::{Fate, Proxy, Way, eventually};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Sends back every line, and remembers it.
struct Echo {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(Self::serve(stream, Arc::clone(&seen)));
                }
            }
        });
        Self { port, seen }
    }

    async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
        let (from, mut to) = stream.split();
        let mut lines = BufReader::new(from).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            seen.lock().unwrap().push(line.clone());
            if to.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                return;
            }
        }
        let _ = to.write_all(b"end\n").await;
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    async fn await_seen(&self, line: &str) {
        eventually(&format!("the server sees {line}"), async || self.seen().iter().any(|seen| seen == line)).await;
    }
}

struct Client(TcpStream);

impl Client {
    async fn of(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap())
    }

    /// Why there is no connection, when that shows at the latest by reading.
    async fn refused(proxy: &Proxy) -> ErrorKind {
        match TcpStream::connect(("127.0.0.1", proxy.port())).await {
            Ok(stream) => Self(stream).read().await.unwrap_err(),
            Err(error) => error.kind(),
        }
    }

    async fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, line: &str) -> Result<String, ErrorKind> {
        self.send(line).await;
        self.read().await
    }

    /// The next line, or why there is none: the end of the stream, a reset, or silence.
    async fn read(&mut self) -> Result<String, ErrorKind> {
        let mut line = Vec::new();
        let read = async {
            loop {
                match self.0.read_u8().await.map_err(|error| error.kind())? {
                    b'\n' => return Ok(()),
                    byte => line.push(byte),
                }
            }
        };
        timeout(SILENCE, read).await.unwrap_or(Err(ErrorKind::TimedOut))?;
        Ok(String::from_utf8(line).unwrap())
    }
}

/// Nothing came for so long.
const SILENCE: Duration = Duration::from_millis(300);

async fn echo() -> (Echo, Proxy, Client) {
    let echo = Echo::start().await;
    let proxy = Proxy::to(echo.port);
    let mut client = Client::of(&proxy).await;
    assert_eq!(client.ask("hello").await.unwrap(), "hello");
    (echo, proxy, client)
}

#[tokio::test]
async fn it_forwards_and_counts() {
    let (_echo, proxy, mut client) = echo().await;
    let mut other = Client::of(&proxy).await;
    assert_eq!(other.ask("hello hello").await.unwrap(), "hello hello");
    assert_eq!((proxy.count("hello"), proxy.connections(), proxy.open_connections()), (3, 2, 2));
    // A pattern that comes in two pieces is one.
    client.0.write_all(b"hel").await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(client.ask("lo").await.unwrap(), "hello");
    assert_eq!(proxy.count("hello"), 4);
    proxy.forget();
    assert_eq!(proxy.count("hello"), 0);
    drop(client);
    eventually("the connection is closed", async || proxy.open_connections() == 1).await;
}

#[tokio::test]
async fn a_delay_keeps_the_order() {
    let (_echo, proxy, mut client) = echo().await;
    proxy.delay(Duration::from_millis(40)..Duration::from_millis(80));
    let before = Instant::now();
    for n in 0..10 {
        client.send(&n.to_string()).await;
    }
    for n in 0..10 {
        assert_eq!(client.read().await.unwrap(), n.to_string());
    }
    let took = before.elapsed();
    // There and back; and ten lines are not ten times as late.
    assert!((Duration::from_millis(80)..Duration::from_millis(400)).contains(&took), "{took:?}");
    proxy.heal();
    assert_eq!(client.ask("quick").await.unwrap(), "quick");
}

#[tokio::test]
async fn what_is_held_arrives_late() {
    let (echo, proxy, mut client) = echo().await;
    proxy.hold(Way::ToClient);
    assert_eq!(client.ask("reply").await, Err(ErrorKind::TimedOut));
    echo.await_seen("reply").await;
    proxy.release();
    assert_eq!(client.read().await.unwrap(), "reply");
    proxy.hold(Way::ToServer);
    assert_eq!(client.ask("request").await, Err(ErrorKind::TimedOut));
    assert_eq!(echo.seen(), ["hello", "reply"]);
    proxy.heal();
    assert_eq!(client.read().await.unwrap(), "request");
}

#[tokio::test]
async fn what_a_blackhole_swallows_is_lost_and_the_connection_with_it() {
    for way in [Way::ToServer, Way::ToClient] {
        let (echo, proxy, mut client) = echo().await;
        let mut idle = Client::of(&proxy).await;
        assert_eq!(idle.ask("idle").await.unwrap(), "idle");
        proxy.blackhole(way);
        assert_eq!(client.ask("lost").await, Err(ErrorKind::TimedOut));
        assert_eq!(echo.seen().iter().any(|line| line == "lost"), way == Way::ToClient);
        // New connections are accepted, and hear nothing.
        let mut new = Client::of(&proxy).await;
        assert_eq!(new.ask("new").await, Err(ErrorKind::TimedOut));
        proxy.heal();
        assert_eq!(client.read().await, Err(ErrorKind::ConnectionReset));
        assert_eq!(new.read().await, Err(ErrorKind::ConnectionReset));
        assert_eq!(idle.ask("still here").await.unwrap(), "still here");
    }
}

#[tokio::test]
async fn a_cut_loses_the_end_of_a_connection_too() {
    let (_echo, proxy, mut client) = echo().await;
    proxy.cut();
    client.0.shutdown().await.unwrap();
    assert_eq!(client.read().await, Err(ErrorKind::TimedOut));
    proxy.heal();
    assert_eq!(client.read().await, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_reset_breaks_open_connections_and_refusal_new_ones() {
    let (_echo, proxy, mut client) = echo().await;
    proxy.reset();
    assert_eq!(client.read().await, Err(ErrorKind::ConnectionReset));
    let mut client = Client::of(&proxy).await;
    assert_eq!(client.ask("again").await.unwrap(), "again");
    proxy.refuse();
    assert_eq!(client.ask("still").await.unwrap(), "still");
    assert_eq!(Client::refused(&proxy).await, ErrorKind::ConnectionReset);
    proxy.heal();
    assert_eq!(Client::of(&proxy).await.ask("new").await.unwrap(), "new");
}

#[tokio::test]
async fn one_half_of_a_connection_ends_alone() {
    let (echo, proxy, mut client) = echo().await;
    proxy.half_close(Way::ToServer);
    // The server saw the end, and could still answer.
    assert_eq!(client.read().await.unwrap(), "end");
    assert_eq!(client.read().await, Err(ErrorKind::UnexpectedEof));
    let mut client = Client::of(&proxy).await;
    assert_eq!(client.ask("open").await.unwrap(), "open");
    proxy.half_close(Way::ToClient);
    assert_eq!(client.read().await, Err(ErrorKind::UnexpectedEof));
    client.send("heard").await;
    echo.await_seen("heard").await;
}

#[tokio::test]
async fn a_request_that_matches_is_lost_or_held() {
    for (fate, then) in [
        (Fate::Reset, ErrorKind::ConnectionReset),
        (Fate::Silence, ErrorKind::TimedOut),
        (Fate::Hold, ErrorKind::TimedOut),
    ] {
        let (echo, proxy, mut client) = echo().await;
        let rule = proxy.on_request("pay", 2, fate);
        assert_eq!(client.ask("pay 1").await.unwrap(), "pay 1");
        assert!(!rule.has_fired());
        assert_eq!(client.ask("pay 2").await, Err(then), "{fate:?}");
        assert!(rule.has_fired());
        assert_eq!(echo.seen(), ["hello", "pay 1"]);
        // Only that one, on whichever connection.
        assert_eq!(Client::of(&proxy).await.ask("pay 3").await.unwrap(), "pay 3");
        proxy.release();
        if fate == Fate::Hold {
            assert_eq!(client.read().await.unwrap(), "pay 2");
            assert_eq!(client.ask("pay 4").await.unwrap(), "pay 4");
        }
    }
}

#[tokio::test]
async fn a_request_is_carried_out_and_its_reply_lost_or_held() {
    for (fate, then) in [
        (Fate::Reset, ErrorKind::ConnectionReset),
        (Fate::Silence, ErrorKind::TimedOut),
        (Fate::Hold, ErrorKind::TimedOut),
    ] {
        let (echo, proxy, mut client) = echo().await;
        let rule = proxy.on_reply_to("pay", 1, fate);
        assert_eq!(client.ask("other").await.unwrap(), "other");
        assert_eq!(client.ask("pay").await, Err(then), "{fate:?}");
        assert!(rule.has_fired());
        echo.await_seen("pay").await;
        proxy.release();
        if fate == Fate::Hold {
            assert_eq!(client.read().await.unwrap(), "pay");
        }
    }
}

#[tokio::test]
async fn a_reply_that_matches_is_lost() {
    let (echo, proxy, mut client) = echo().await;
    let rule = proxy.on_reply("odd", 1, Fate::Silence);
    assert_eq!(client.ask("even").await.unwrap(), "even");
    assert_eq!(client.ask("odd").await, Err(ErrorKind::TimedOut));
    assert!(rule.has_fired());
    // Nothing follows a gap.
    assert_eq!(client.ask("even").await, Err(ErrorKind::TimedOut));
    assert_eq!(echo.seen().len(), 4);
}

#[tokio::test]
async fn rules_that_were_taken_back_do_nothing() {
    let (_echo, proxy, mut client) = echo().await;
    let rule = proxy.on_request("pay", 1, Fate::Reset);
    proxy.drop_rules();
    assert_eq!(client.ask("pay").await.unwrap(), "pay");
    assert!(!rule.has_fired());
}

#[tokio::test]
async fn a_server_that_is_down_is_a_reset() {
    let proxy = Proxy::to(1);
    assert_eq!(Client::refused(&proxy).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_redirected_link_leads_new_connections_elsewhere() {
    let (one, proxy, mut old) = echo().await;
    let other = Echo::start().await;
    proxy.redirect(other.port);
    assert_eq!(old.ask("old").await.unwrap(), "old");
    assert_eq!(Client::of(&proxy).await.ask("new").await.unwrap(), "new");
    assert_eq!((one.seen(), other.seen()), (vec!["hello".to_owned(), "old".to_owned()], vec!["new".to_owned()]));
}
