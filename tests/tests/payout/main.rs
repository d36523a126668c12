//! Calls to an external API that is not idempotent, over real processes: a bank that keeps its own ledger and misbehaves, and workers that
//! are killed, stopped and cut off.

#![allow(clippy::unwrap_used, reason = "a test panics")]
#![allow(clippy::print_stdout, reason = "the fault test tells its figures")]

mod bank;
mod cases;
mod crashes;
mod faults;
mod kills;
mod late;
mod route;
mod steps;

use std::time::Duration;

use http::{Method, StatusCode};
use idempotency_testbed::{Bank, Client, Reply, Rig, Testbed, eventually};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A bank without faults but those that are planned, and workers on one SQLite store that call it.
struct Payouts {
    rig: Rig,
    bank: Bank,
}

impl Payouts {
    async fn new(rig: Rig) -> Self {
        let bank = rig.start_bank(&[]).await;
        Self { rig, bank }
    }

    async fn worker(&self) -> Testbed {
        self.worker_with(&[]).await
    }

    async fn worker_with(&self, options: &[&str]) -> Testbed {
        let bank = self.bank.url();
        self.rig.start_on_sqlite(&[&["--bank", bank.as_str(), "--store-timeout", "10s"], options].concat()).await
    }

    /// How many transfers of this amount the bank made, and how many calls for it it had.
    async fn counts(&self, amount: i64) -> (usize, usize) {
        (self.bank.transfers_of(amount).await.len(), self.bank.calls_of(amount).await.len())
    }

    /// Waits until the bank has had so many calls for this amount.
    async fn called(&self, amount: i64, times: usize) {
        eventually("the bank is called", async || self.bank.calls_of(amount).await.len() == times).await;
    }
}

fn amount(amount: i64) -> Value {
    json!({ "amount": amount })
}

fn path(policy: &str) -> String {
    format!("/payout?policy={policy}")
}

async fn pay(testbed: &Testbed, path: &str, key: &str, of: i64) -> Reply {
    testbed.post(path, key, &amount(of)).await
}

/// Asks in the background: whoever answers may be stopped or killed meanwhile.
fn begin(testbed: &Testbed, path: &str, key: &str, of: i64) -> JoinHandle<Option<Reply>> {
    let client = testbed.client().clone();
    let (path, key) = (path.to_owned(), key.to_owned());
    tokio::spawn(async move { client.call(Method::POST, &path).key(&key).json(&amount(of)).send().await.ok() })
}

/// Asks with the same key until it is answered for good.
async fn pay_until_decided(testbed: &Testbed, path: &str, key: &str, of: i64) -> Reply {
    until_decided(testbed.client(), path, key, of).await
}

async fn until_decided(client: &Client, path: &str, key: &str, of: i64) -> Reply {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let reply = client.call(Method::POST, path).key(key).json(&amount(of)).send().await;
        match &reply {
            Ok(reply) if reply.retry_after().is_none() => return reply.clone(),
            Ok(reply) => is_retryable(reply),
            Err(_) => {}
        }
        assert!(Instant::now() < give_up, "still {reply:?}");
        sleep(Duration::from_millis(250)).await;
    }
}

#[track_caller]
fn is_retryable(reply: &Reply) {
    let retryable = [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE].contains(&reply.status);
    assert!(retryable && reply.problem().is_some(), "{reply:?}");
}

#[track_caller]
fn is_unknown(reply: &Reply) {
    let kind = reply.problem();
    assert_eq!((reply.status.as_u16(), kind.as_deref()), (409, Some("outcome-unknown")), "{reply:?}");
    assert!(reply.retry_after().is_some(), "{reply:?}");
}

/// Asks until the answer is that the outcome is unknown, past everything that is said while somebody else may be at it.
async fn until_unknown(testbed: &Testbed, path: &str, key: &str, of: i64) {
    eventually("nobody is at it", async || {
        let reply = pay(testbed, path, key, of).await;
        is_retryable(&reply);
        reply.problem().as_deref() == Some("outcome-unknown") && step(testbed, key).await["state"] == "unknown"
    })
    .await;
}

/// The key's one step, as it is listed.
async fn step(testbed: &Testbed, key: &str) -> Value {
    let steps = testbed.steps(&format!("?key={key}")).await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    steps[0].clone()
}

async fn until_step(testbed: &Testbed, key: &str, state: &str) {
    eventually(state, async || testbed.steps(&format!("?key={key}")).await.iter().any(|step| step["state"] == state))
        .await;
}

/// The key's one step with its calls.
async fn inspect(testbed: &Testbed, key: &str) -> Value {
    let step = step(testbed, key).await;
    testbed.get(&step_path(&step)).await.json()
}

fn step_path(step: &Value) -> String {
    format!("/records/{}/steps/{}", step["id"].as_str().unwrap(), step["label"].as_str().unwrap())
}

/// How each call ended, in order.
fn ends(inspected: &Value) -> Vec<&str> {
    inspected["calls"].as_array().unwrap().iter().map(|call| call["end"].as_str().unwrap_or("none")).collect()
}

/// Says what became of a step.
async fn resolve(testbed: &Testbed, step: &Value, finding: &Value) -> Reply {
    testbed.call(Method::POST, &format!("{}/resolve", step_path(step))).json(finding).reply().await
}

fn did_not_happen(step: &Value) -> Value {
    json!({ "call": step["call"], "who": "ann", "why": "asked the bank", "happened": false })
}

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
