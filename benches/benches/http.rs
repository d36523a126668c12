//! What the layer leaves of a server's throughput over HTTP/1.1: the server on one core, what loads it on another, requests a second as a
//! share of the bare service's in one run. `cargo bench -p idempotency-benches --bench http`; `-- --quick` runs it for a moment.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints its table, and fails loudly")]

#[path = "work/charge.rs"]
mod charge;

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::serve::ListenerExt as _;
use charge::{BODY, app};
use idempotency_benches::{Subject, compare, timed};
use idempotency_memory::MemoryStore;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tower::make::Shared;
use tower::util::MapResponse;
use tower::{Layer as _, Service};
use tower_idempotency::{IdempotencyLayer, Scope};

fn main() {
    let says = |word: &str| std::env::args().any(|argument| argument == word);
    if says(SERVE) {
        return serve();
    }
    let (rounds, n) = if says("--quick") || says("--test") { (3, 320) } else { (41, 6400) };
    let (mut server, [bare, around, inside]) = start();
    let runtime = single();
    // It never sleeps: to wake it would cost the server more than many a request does, and the more the longer it is waited for.
    runtime.spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let mut subjects = vec![subject("bare", &bare, |n| Some(format!("not-looked-at-{n}")), n, &runtime)];
    for (mount, address) in [("around the router: ", around), ("", inside)] {
        let mut add = |what: &str, key: fn(u64) -> Option<String>| {
            subjects.push(subject(&format!("{mount}{what}"), &address, key, n, &runtime));
        };
        add("no key", |_| None);
        add("first request", |n| Some(format!("first-{n:012}")));
        add("replay", |_| Some("replayed-000000000".to_owned()));
    }
    let rows = compare(rounds, &mut subjects);
    println!("| what | throughput, share of bare | quartiles | requests/s |\n|---|---|---|---|");
    for row in &rows {
        let share = rows[0].against(row);
        let rate = 1.0 / row.time.as_secs_f64();
        println!("| {} | {:.2}x | {:.2}-{:.2} | {rate:.0} |", row.name, share.median, share.low, share.high);
    }
    println!("\n{CONNECTIONS} connections.");
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// As many as keep the server busy.
const CONNECTIONS: u32 = 32;

const SERVE: &str = "--serve";

/// The server, in a process of its own, so that no allocator and no runtime is shared; and where it serves what is bare and what is
/// protected. It ends when its standard input does, so also with us.
fn start() -> (Child, [String; 3]) {
    let cores: Vec<usize> =
        sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect()).unwrap();
    if cores.len() < 2 {
        println!("There is one core only: what loads the server takes its time from it.\n");
    }
    let mut server = Command::new(std::env::current_exe().unwrap());
    server.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped());
    // It inherits the core.
    pin(cores[0]);
    let mut server = server.spawn().unwrap();
    pin(cores[cores.len() - 1]);
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let addresses = [(); 3].map(|()| lines.next().unwrap().unwrap());
    (server, addresses)
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).unwrap();
}

fn single() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Side by side: the bare service, one with the layer around its router, and one with the layer inside it, on each route.
fn serve() {
    std::thread::spawn(|| {
        let ended = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(ended.is_err()));
    });
    single().block_on(async {
        let layer = || IdempotencyLayer::new(MemoryStore::new(), Scope::global());
        let around = MapResponse::new(layer().layer(app()), |response: Response<_>| response.map(Body::new));
        tokio::join!(listen(app()), listen(around), listen(app().layer(layer())));
    });
}

async fn listen<S>(service: S)
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    axum::serve(listener, Shared::new(service)).await.unwrap();
}

/// Requests over connections of its own, which are kept.
fn subject<'r>(
    name: &str,
    address: &str,
    key: impl Fn(u64) -> Option<String> + 'r,
    n: u32,
    runtime: &'r Runtime,
) -> Subject<'r> {
    let mut connections: Vec<Connection> = runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Connection::open(address).await);
        }
        connections
    });
    let mut keys = 0;
    Subject::new(name, n, runtime, async move |n| {
        let mut next = || {
            keys += 1;
            request(key(keys).as_deref())
        };
        // The first of the repeated ones, if they are.
        connections[0].exchange(&next()).await;
        let mut requests: Vec<Vec<_>> =
            connections.iter().map(|_| (0..n / CONNECTIONS).map(|_| next()).collect()).collect();
        timed(async {
            let mut tasks = JoinSet::new();
            for mut connection in connections.drain(..) {
                let requests = requests.pop().unwrap();
                tasks.spawn(async move {
                    for request in requests {
                        connection.exchange(&request).await;
                    }
                    connection
                });
            }
            connections.extend(tasks.join_all().await);
        })
        .await
    })
}

fn request(key: Option<&str>) -> Vec<u8> {
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let head = format!("POST /charge HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{key}");
    format!("{head}content-length: {}\r\n\r\n{BODY}", BODY.len()).into_bytes()
}

/// No more of a client than is needed here, so that it is the server that is busy.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, answer: Vec::with_capacity(4096) }
    }

    async fn exchange(&mut self, request: &[u8]) {
        self.stream.write_all(request).await.unwrap();
        self.answer.clear();
        while !self.is_whole() {
            assert!(self.stream.read_buf(&mut self.answer).await.unwrap() > 0, "the server hung up");
        }
        assert!(self.answer.starts_with(b"HTTP/1.1 201 "), "{}", self.answer.escape_ascii());
    }

    fn is_whole(&self) -> bool {
        let Some(head) = self.answer.windows(4).position(|end| end == b"\r\n\r\n") else { return false };
        self.answer.len() >= head + 4 + BODY.len()
    }
}
