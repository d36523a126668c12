//! A running testbed.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use http::Method;
use rustix::process::Signal;
use serde_json::Value;

use crate::process::Process;
use crate::{Call, Client, Ended, Reply, within};

/// A running testbed, started by a [`Rig`](crate::Rig). Killed when dropped.
#[derive(Debug)]
pub struct Testbed {
    process: Process,
    address: SocketAddr,
    client: Client,
}

impl Testbed {
    /// Starts the program and waits until it is ready.
    pub(crate) async fn start(command: &mut Command) -> Self {
        Self::try_start(command).await.unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// The same where it may end instead: its store may be away. Then what it said.
    pub(crate) async fn try_start(command: &mut Command) -> Result<Self, String> {
        let mut process = Process::spawn(command);
        let mut ended = None;
        within(Duration::from_secs(20), "the testbed is ready", async || {
            ended = process.try_wait();
            ended.is_some() || process.stdout().contains('\n')
        })
        .await;
        if let Some(status) = ended {
            return Err(format!("the testbed does not start ({status}): {}", process.stderr()));
        }
        let line = process.stdout();
        let url = line.trim_end().strip_prefix("listening on ").expect("the line of a testbed");
        let address = url.strip_prefix("http://").and_then(|address| address.parse().ok()).expect("an address");
        Ok(Self { client: Client::http1(url), process, address })
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Its process number, as effects carry it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Its own HTTP/1.1 client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A request, to be completed and sent.
    pub fn call(&self, method: Method, path: &str) -> Call<'_> {
        self.client.call(method, path)
    }

    /// Posts JSON under a key.
    pub async fn post(&self, path: &str, key: &str, json: &Value) -> Reply {
        self.client.post(path, key, json).await
    }

    /// Gets a page.
    pub async fn get(&self, path: &str) -> Reply {
        self.client.get(path).await
    }

    /// How many effects a key has in the ledger. The key may hold letters, digits, `-`, `.`, `_` and `~`.
    pub async fn effects(&self, key: &str) -> u64 {
        self.count(&format!("/effects?key={key}")).await
    }

    /// How many effects the ledger has.
    pub async fn all_effects(&self) -> u64 {
        self.count("/effects").await
    }

    async fn count(&self, path: &str) -> u64 {
        self.get(path).await.json()["count"].as_u64().expect("a count")
    }

    /// The rows of `GET /effects`, with a query such as `?key=a`, or none.
    pub async fn effect_rows(&self, query: &str) -> Vec<Value> {
        self.rows(&format!("/effects{query}"), "rows").await
    }

    /// The records of `GET /records`, with a query such as `?state=in-doubt`, or none.
    pub async fn records(&self, query: &str) -> Vec<Value> {
        self.rows(&format!("/records{query}"), "records").await
    }

    /// The steps of `GET /steps`, with a query such as `?state=unknown`, or none.
    pub async fn steps(&self, query: &str) -> Vec<Value> {
        self.rows(&format!("/steps{query}"), "steps").await
    }

    async fn rows(&self, path: &str, member: &str) -> Vec<Value> {
        let reply = self.get(path).await;
        reply.json()[member].as_array().unwrap_or_else(|| panic!("no {member}: {reply:?}")).clone()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it (SIGSTOP) and waits until it stands: as in a long garbage collection, or a moved machine.
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self) {
        self.process.signal(Signal::CONT);
    }

    /// Asks it to end (SIGTERM), without waiting.
    pub fn ask_to_end(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn terminate(mut self) -> Ended {
        self.ask_to_end();
        self.ended().await
    }

    /// Waits until it has ended, for at most 90 s.
    pub async fn ended(mut self) -> Ended {
        self.process.wait(Duration::from_secs(90)).await
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.process.try_wait().is_none()
    }

    /// What it wrote to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }
}
