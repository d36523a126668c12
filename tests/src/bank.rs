//! A running bank: the external API that `/payout` calls.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::{Ended, Reply, Testbed};

/// A running bank, started by [`Rig::start_bank`](crate::Rig::start_bank). Killed when dropped.
#[derive(Debug)]
pub struct Bank(Testbed);

impl Bank {
    pub(crate) const fn new(server: Testbed) -> Self {
        Self(server)
    }

    /// `http://127.0.0.1:PORT`, for `--bank`.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The server, to be paused, asked, or ended.
    #[must_use]
    pub const fn server(&self) -> &Testbed {
        &self.0
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn terminate(self) -> Ended {
        self.0.terminate().await
    }

    /// Kills it (SIGKILL): from then on connections are refused. Its books stay.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// Stops it (SIGSTOP) and waits until it stands: it is connected to, and silent.
    pub fn pause(&mut self) {
        self.0.pause();
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&mut self) {
        self.0.resume();
    }

    /// Says what the next calls with this amount meet: names of faults, or `none`.
    pub async fn plan(&self, amount: i64, faults: &[&str]) {
        let planned = self.0.call(Method::PUT, &format!("/plan/{amount}")).json(&json!(faults)).reply().await;
        assert!(planned.status.is_success(), "{planned:?}");
    }

    /// Asks for a transfer, as a customer without a guard does.
    pub async fn transfer(&self, reference: &str, amount: i64) -> Reply {
        let order = json!({ "reference": reference, "amount": amount });
        self.0.call(Method::POST, "/transfers").json(&order).reply().await
    }

    /// All transfers that were made.
    pub async fn transfers(&self) -> Vec<Value> {
        self.rows("/ledger").await
    }

    /// All calls for transfers, each with its `reference`, `amount`, `key` and `fault`.
    pub async fn calls(&self) -> Vec<Value> {
        self.rows("/calls").await
    }

    /// The transfers of this amount.
    pub async fn transfers_of(&self, amount: i64) -> Vec<Value> {
        of(amount, self.transfers().await)
    }

    /// The calls for this amount.
    pub async fn calls_of(&self, amount: i64) -> Vec<Value> {
        of(amount, self.calls().await)
    }

    /// How many calls met which fault.
    pub async fn faults(&self) -> BTreeMap<String, u64> {
        let reply = self.0.get("/faults").await;
        serde_json::from_slice(&reply.body).unwrap_or_else(|fault| panic!("no counts ({fault}): {reply:?}"))
    }

    async fn rows(&self, path: &str) -> Vec<Value> {
        let reply = self.0.get(path).await;
        reply.json()["rows"].as_array().unwrap_or_else(|| panic!("no rows: {reply:?}")).clone()
    }
}

fn of(amount: i64, rows: Vec<Value>) -> Vec<Value> {
    rows.into_iter().filter(|row| row["amount"] == amount).collect()
}
