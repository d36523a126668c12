//! The README's tour, against the program itself.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use idempotency_testbed::servers::Redis;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

#[test]
fn a_retry_gets_the_recorded_answer() {
    let (_folder, server) = started(&["--think", "0s"]);

    let first = server.pay("k1", 10);
    assert_eq!(first.status, 201);
    assert_eq!(first.header("location"), Some("/payments/1"));
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(first.json(), json!({ "id": 1, "from": "alice", "to": "bob", "amount": 10 }));

    let again = server.pay("k1", 10);
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("location"), Some("/payments/1"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));

    let other = server.pay("k1", 99);
    assert_eq!((other.status, other.problem()), (422, "idempotency-key-reused".into()));

    assert_eq!(server.get("/accounts/alice").json(), json!({ "id": "alice", "balance": 990, "payments": 1 }));
    assert_eq!(server.get("/accounts/bob").json(), json!({ "id": "bob", "balance": 1010, "payments": 0 }));
    assert_eq!(server.get("/payments/1").body, first.body);
}

#[test]
fn a_payment_needs_a_key() {
    let (_folder, server) = started(&[]);
    let body = json!({ "from": "alice", "to": "bob", "amount": 10 }).to_string();
    let refused = server.send(&format!("POST /payments HTTP/1.1\r\n{JSON}Content-Length: {}\r\n", body.len()), &body);
    assert_eq!((refused.status, refused.problem()), (400, "idempotency-key-missing".into()));
    assert_eq!(refused.header("link"), Some("</.well-known/idempotency>; rel=\"describedby\""));
    server.assert_paid(0, 0);
}

#[test]
fn two_at_once_are_one_payment_and_two_equal_answers() {
    let (_folder, server) = started(&["--think", "300ms"]);
    let (one, two) = thread::scope(|scope| {
        let one = scope.spawn(|| server.pay("k1", 10));
        let two = scope.spawn(|| server.pay("k1", 10));
        (one.join().unwrap(), two.join().unwrap())
    });
    assert_eq!((one.status, &one.body), (201, &two.body));
    assert_eq!(two.status, 201);
    let replays = [&one, &two].into_iter().filter(|answer| answer.header("idempotent-replayed").is_some());
    assert_eq!(replays.count(), 1);
    server.assert_paid(1, 10);
}

#[test]
fn a_client_that_hangs_up_gets_the_answer_when_it_asks_again() {
    let (_folder, server) = started(&["--think", "300ms"]);
    let connection = server.ask("k1", 10);
    thread::sleep(Duration::from_millis(100));
    drop(connection);
    let again = server.pay("k1", 10);
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
    server.assert_paid(1, 10);
}

#[test]
fn a_killed_server_still_replays() {
    let (folder, server) = started(&["--think", "0s"]);
    let first = server.pay("k1", 10);
    server.kill();

    let server = Server::start(folder.path(), &["--think", "0s"]);
    let again = server.pay("k1", 10);
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(again.body, first.body);
    server.assert_paid(1, 10);
}

#[test]
fn a_payment_that_was_killed_half_way_is_not_made_again() {
    let (folder, server) = started(&["--think", "1m", "--lease", "1s"]);
    let connection = server.ask("k1", 10);
    thread::sleep(Duration::from_millis(300));
    server.kill();
    drop(connection);

    let server = Server::start(folder.path(), &["--think", "0s", "--lease", "1s"]);
    let again = server.pay("k1", 10);
    assert_eq!((again.status, again.problem()), (409, "outcome-unknown".into()));
    assert_eq!(again.header("retry-after"), None);
    assert_eq!(again.json()["retryable"], false);
    server.assert_paid(0, 0);
}

#[test]
fn what_was_decided_is_recorded_and_what_was_refused_is_not() {
    let (_folder, server) = started(&["--think", "0s"]);

    let declined = server.pay("k1", 5000);
    assert_eq!((declined.status, declined.header("idempotent-replayed")), (402, None));
    let again = server.pay("k1", 5000);
    assert_eq!((again.status, again.header("idempotent-replayed")), (402, Some("true")));
    assert_eq!(again.body, declined.body);

    // A typo: the corrected request may use the same key.
    assert_eq!(server.pay("k2", 0).status, 422);
    assert_eq!(server.pay_to("k2", "bbo", 10).status, 422);
    assert_eq!(server.pay("k2", 10).status, 201);
    server.assert_paid(1, 10);
}

#[test]
fn what_the_database_rolled_back_may_be_tried_again() {
    let (folder, server) = started(&["--think", "0s"]);
    execute(folder.path(), "DROP TABLE payment");
    let failed = server.pay("k1", 10);
    assert_eq!((failed.status, failed.header("retry-after")), (503, Some("1")));
    server.kill();

    // It makes its tables.
    let server = Server::start(folder.path(), &["--think", "0s"]);
    let again = server.pay("k1", 10);
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, None));
    server.assert_paid(1, 10);
}

#[test]
fn the_rules_are_published() {
    let (_folder, server) = started(&[]);
    let rules = server.get("/.well-known/idempotency").json();
    assert_eq!(rules["key_required"], true);
    assert_eq!(rules["methods"], json!(["POST"]));
    assert_eq!(rules["response_window"], "PT24H");
    assert_eq!(rules["tombstone_window"], "PT720H");
    assert_eq!((&rules["in_flight"], &rules["in_flight_wait"]), (&json!("wait"), &json!("PT10S")));
    assert_eq!(rules["recovery"], "hold");
}

#[test]
fn a_shutdown_finishes_what_was_begun() {
    let (folder, mut server) = started(&["--think", "500ms"]);
    let (answered, left) = (server.ask("k1", 10), server.ask("k2", 20));
    thread::sleep(Duration::from_millis(200));
    drop(left);
    let kill = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(Answer::read(answered).status, 201);
    assert!(server.child.wait().unwrap().success());

    let server = Server::start(folder.path(), &[]);
    for (key, amount) in [("k1", 10), ("k2", 20)] {
        let again = server.pay(key, amount);
        assert_eq!((again.status, again.header("idempotent-replayed")), (201, Some("true")), "{key}");
    }
    server.assert_paid(2, 30);
}

#[test]
fn in_memory_a_restart_forgets() {
    let folder = tempfile::tempdir().unwrap();
    for payments in [1, 2] {
        let server = Server::start(folder.path(), &["--think", "0s", "--store", "memory:"]);
        assert_eq!(server.pay("k1", 10).header("idempotent-replayed"), None);
        assert_eq!(server.pay("k1", 10).header("idempotent-replayed"), Some("true"));
        server.assert_paid(payments, 10 * payments);
    }
}

#[test]
fn two_instances_on_one_redis_share_their_records() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().unwrap();
    let url = redis.url();
    let options = ["--think", "300ms", "--store", url.as_str()];
    let servers = [Server::start(folder.path(), &options), Server::start(folder.path(), &options)];
    let answers = thread::scope(|scope| {
        let payments = servers.each_ref().map(|server| scope.spawn(|| server.pay("k1", 10)));
        payments.map(|payment| payment.join().unwrap())
    });
    assert_eq!(answers.each_ref().map(|answer| answer.status), [201, 201]);
    assert_eq!(answers[0].body, answers[1].body);
    assert_eq!(servers[1].pay("k1", 10).header("idempotent-replayed"), Some("true"));
    servers[0].assert_paid(1, 10);
}

#[test]
fn a_redis_that_evicts_is_refused() {
    let redis = Redis::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_payments"));
    let program = program.args(["--listen", "127.0.0.1:0", "--store", &redis.url()]).current_dir(folder.path());
    let output = program.env("RUST_LOG", "off").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("payments: not a Redis to keep this in: ") && said.lines().count() == 1, "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_store_that_cannot_be_opened_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    for (store, complaint) in [
        ("sqlite:missing/records.sqlite", "payments: the store cannot be opened: "),
        ("redis://u:s3cret@127.0.0.1:1/", "payments: the store cannot be opened: the store cannot be reached: "),
        ("carrier-pigeon:", "payments: not a usable store URL: "),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_payments"));
        let program = program.args(["--listen", "127.0.0.1:0", "--store", store]).current_dir(folder.path());
        let output = program.env("RUST_LOG", "off").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(complaint) && said.lines().count() == 1, "{said}");
        assert!(!said.contains("s3cret"), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}

/// A server in a folder of its own.
fn started(options: &[&str]) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), options);
    (folder, server)
}

/// Changes the database of accounts and payments behind the server's back.
fn execute(folder: &Path, statement: &'static str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(folder.join("payments.sqlite"));
        let mut connection = options.connect().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_payments"))
            .args(["--listen", "127.0.0.1:0"])
            .args(options)
            .current_dir(folder)
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").expect("it says where it listens");
        Self { child, address: address.into() }
    }

    /// SIGKILL.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn pay(&self, key: &str, amount: u32) -> Answer {
        Answer::read(self.ask(key, amount))
    }

    fn pay_to(&self, key: &str, to: &str, amount: u32) -> Answer {
        Answer::read(self.ask_for(key, to, amount))
    }

    /// Sends a payment from alice to bob, and leaves the answer to the caller.
    fn ask(&self, key: &str, amount: u32) -> TcpStream {
        self.ask_for(key, "bob", amount)
    }

    fn ask_for(&self, key: &str, to: &str, amount: u32) -> TcpStream {
        let body = json!({ "from": "alice", "to": to, "amount": amount }).to_string();
        let length = body.len();
        let head = format!("POST /payments HTTP/1.1\r\n{JSON}Idempotency-Key: {key}\r\nContent-Length: {length}\r\n");
        self.write(&head, &body)
    }

    fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    fn send(&self, head: &str, body: &str) -> Answer {
        Answer::read(self.write(head, body))
    }

    fn write(&self, head: &str, body: &str) -> TcpStream {
        let mut connection = TcpStream::connect(&self.address).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(connection, "{head}Host: {}\r\nConnection: close\r\n\r\n{body}", self.address).unwrap();
        connection
    }

    fn assert_paid(&self, payments: u32, amount: u32) {
        let account = self.get("/accounts/alice").json();
        assert_eq!(account, json!({ "id": "alice", "balance": 1000 - amount, "payments": payments }));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Answer {
    status: u16,
    head: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn read(mut connection: TcpStream) -> Self {
        let mut text = String::new();
        connection.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let head = lines.map(|line| line.split_once(": ").unwrap()).map(|(n, v)| (n.to_lowercase(), v.into()));
        Self { status, head: head.collect(), body: body.into() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The last segment of a problem's type.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        self.json()["type"].as_str().unwrap().rsplit([':', '/']).next().unwrap().into()
    }
}

const JSON: &str = "Content-Type: application/json\r\n";
