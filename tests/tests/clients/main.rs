//! HTTP clients that nobody here wrote, with their own rules for what is tried again and when, pay through a link that loses, cuts and
//! delays what they send and what they are answered.
//!
//! They are installed from the registries of their languages, in the versions that `scripts/` pins.
#![allow(clippy::unwrap_used, reason = "a test")]

mod install;
mod lossy;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::Duration;

use idempotency_testbed::{Proxy, Rig, rig, within};
use serde_json::Value;

use crate::install::Script;
use crate::lossy::{Faults, REQUEST};

/// How many payments a client makes.
const PAYMENTS: usize = 50;
/// Amounts differ, so that an effect tells which payment it was.
const FIRST_AMOUNT: usize = 1000;
/// How long a client waits for an answer.
const TIMEOUT: &str = "1";
/// How long what is late is held back at most: in some cases less than a client waits, in some more.
const LATE: Duration = Duration::from_millis(1700);
/// A renewal that is late on a busy machine is another test.
const PATIENT: [&str; 4] = ["--lease", "30s", "--store-timeout", "10s"];

const STRIPE_FOR_PYTHON: Script = Script::Python("stripe_sdk.py");
const URLLIB3: Script = Script::Python("urllib3_retry.py");
const STRIPE_FOR_NODE: Script = Script::Node("stripe_sdk.mjs");
const GOT: Script = Script::Node("got.mjs");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stripes_sdk_for_python_pays_once() {
    pay_once(STRIPE_FOR_PYTHON, 1, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_the_retries_of_urllib3_pays_once() {
    pay_once(URLLIB3, 2, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stripes_sdk_for_node_pays_once() {
    pay_once(STRIPE_FOR_NODE, 3, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn got_pays_once() {
    pay_once(GOT, 4, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn got_pays_once_where_duplicates_wait() {
    pay_once(GOT, 5, &["--in-flight", "wait:5s"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_protection_the_same_clients_pay_twice() {
    for (seed, client) in [STRIPE_FOR_PYTHON, GOT].into_iter().enumerate() {
        let run = Run::of(client, seed as u64, &["--unprotected"]).await;
        let faults = run.faults();
        assert!(faults.iter().any(|fault| fault.contains("effects")), "{client:?} never paid twice: {run:?}");
    }
}

async fn pay_once(client: Script, seed: u64, options: &[&str]) {
    let run = Run::of(client, seed, options).await;
    let faults = run.faults();
    assert!(faults.is_empty(), "{} faults, such as {}, with seed {seed}: {run:?}", faults.len(), faults[0]);
    assert!(run.is_hard(), "little went wrong: this proves nothing. {run:?}");
    // Some give up on a reply that breaks off, which is no lie. Most must come through.
    assert!(run.done.len() * 10 >= PAYMENTS * 9, "{run:?}");
}

/// What came of one client's payments.
#[derive(Debug)]
struct Run {
    #[expect(dead_code, reason = "for whoever reads that it failed")]
    injected: BTreeMap<lossy::Fault, usize>,
    replies_hit: usize,
    requests: usize,
    replays: usize,
    /// The ids that the client was given, by amount.
    done: BTreeMap<u64, String>,
    /// What it gave up on, and why.
    #[expect(dead_code, reason = "for whoever reads that it failed")]
    given_up: BTreeMap<u64, String>,
    /// The sequence numbers of the effects in the ledger, by amount.
    effects: BTreeMap<u64, Vec<u64>>,
}

impl Run {
    async fn of(client: Script, seed: u64, options: &[&str]) -> Self {
        let command = tokio::task::spawn_blocking(move || client.command()).await.unwrap();
        let rig = rig!();
        let testbed = rig.start_on_sqlite(&[&PATIENT, options].concat()).await;
        let proxy = Proxy::to(testbed.addr().port());
        let faults = Faults::draw(&proxy, seed, 4 * PAYMENTS);
        let said = Running::start(&rig, command, &proxy).end(&proxy).await;
        proxy.release();
        within(Duration::from_secs(20), "nothing is in flight", async || {
            testbed.records("?state=in-flight").await.is_empty()
        })
        .await;

        let (mut done, mut given_up) = (BTreeMap::new(), BTreeMap::new());
        for line in said.lines() {
            let made: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no line of a client: {said}"));
            let amount = made["amount"].as_u64().unwrap();
            match &made["id"] {
                Value::Null => given_up.insert(amount, made["error"].to_string()),
                Value::String(id) => done.insert(amount, id.clone()),
                id => done.insert(amount, id.to_string()),
            };
        }
        assert_eq!(done.len() + given_up.len(), PAYMENTS, "{said}");
        let mut effects = BTreeMap::<u64, Vec<u64>>::new();
        for row in testbed.effect_rows("").await {
            let number = |name: &str| row[name].as_u64().unwrap();
            effects.entry(number("amount")).or_default().push(number("seq"));
        }
        let metrics = testbed.get("/metrics").await.text();
        let replays = metrics.lines().find_map(|line| line.strip_prefix("idempotency_replayed_total "));
        Self {
            injected: faults.fired(),
            replies_hit: faults.of_replies(),
            requests: proxy.count(REQUEST),
            replays: replays.map_or(0, |number| number.parse().unwrap()),
            done,
            given_up,
            effects,
        }
    }

    /// Everything that must not be.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (amount, effects) in self.effects.iter().filter(|(_, effects)| effects.len() > 1) {
            faults.push(format!("{} effects of the payment of {amount}", effects.len()));
        }
        for (amount, id) in &self.done {
            let effect = self.effects.get(amount).and_then(|effects| effects.first());
            let is_its_own = effect.is_some_and(|seq| *id == format!("pi_{seq}") || *id == seq.to_string());
            if !is_its_own {
                faults.push(format!("the payment of {amount} was answered {id}, and its effect is {effect:?}"));
            }
        }
        faults
    }

    /// Whether enough went wrong, and was put right, for the run to mean something.
    fn is_hard(&self) -> bool {
        self.replies_hit >= 8 && self.requests >= PAYMENTS + 12 && self.replays >= 4
    }
}

/// A client at work. Killed when dropped.
struct Running {
    child: Child,
    folder: std::path::PathBuf,
}

impl Running {
    fn start(rig: &Rig, mut command: std::process::Command, proxy: &Proxy) -> Self {
        let folder = rig.folder().to_owned();
        let file = |name| File::create(folder.join(name)).unwrap();
        let url = format!("http://127.0.0.1:{}", proxy.port());
        command.args([&url, &FIRST_AMOUNT.to_string(), &PAYMENTS.to_string(), TIMEOUT]);
        command.stdin(Stdio::null()).stdout(file("client.out")).stderr(file("client.err"));
        Self { child: command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")), folder }
    }

    /// Waits for its end while what is late arrives from time to time, and returns what it said.
    async fn end(mut self, proxy: &Proxy) -> String {
        let read = |name| fs::read_to_string(self.folder.join(name)).unwrap();
        let mut released = tokio::time::Instant::now();
        let mut status = None;
        within(Duration::from_secs(240), "the client is done", async || {
            if released.elapsed() > LATE {
                proxy.release();
                released = tokio::time::Instant::now();
            }
            status = self.child.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert!(status.unwrap().success(), "{}{}", read("client.out"), read("client.err"));
        read("client.out")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
