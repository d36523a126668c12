//! The fault test: hundreds of payouts, each of which meets a fault of the bank at random, over two processes on one store.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use http::{Method, StatusCode};
use idempotency_testbed::servers::{Postgres, Redis};
use idempotency_testbed::{Bank, Client, Reply, Rig, Testbed, rig};
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::{PATIENCE, amount, is_retryable, path};

/// Under each policy.
const PAYOUTS: i64 = 500;
/// At a time.
const CLIENTS: usize = 60;
/// Of each kind of fault, so many must have been injected.
const LEAST_FAULTS: u64 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_on_sqlite_through_every_fault() {
    let rig = rig!();
    let store = rig.sqlite_store();
    Place::new(rig, store).await.pays_right("SQLite").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_on_postgresql_through_every_fault() {
    let server = Postgres::start();
    let store = server.create_database("store");
    Place::new(rig!(), store).await.pays_right("PostgreSQL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_on_redis_through_every_fault() {
    let server = Redis::start();
    let store = server.url();
    Place::new(rig!(), store).await.pays_right("Redis").await;
}

/// The proof that the tests above can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_faults_without_the_guard_pay_twice() {
    let rig = rig!();
    let store = rig.sqlite_store();
    let place = Place::with(rig, store, &["--unprotected"]).await;
    let run = place.run("hold", 0, 100).await;
    let twice = run.paid.iter().filter(|paid| paid.transfers.len() > 1).count();
    println!("without the guard: {twice} of 100 payouts were paid more than once");
    assert!(twice >= 20, "{twice} of 100: this proves nothing");
    assert!(!run.faults(|paid| paid.transfers.len() <= 1).is_empty(), "the run does not notice");
}

/// A bank at which every payout meets a fault, and two processes that call it.
struct Place {
    bank: Bank,
    testbeds: [Testbed; 2],
    _rig: Rig,
}

impl Place {
    async fn new(rig: Rig, store: String) -> Self {
        Self::with(rig, store, &[]).await
    }

    async fn with(rig: Rig, store: String, options: &[&str]) -> Self {
        let bank = rig.start_bank(&["--faults", "1", "--seed", "42"]).await;
        let url = bank.url();
        // A store that is late is another test.
        let all = ["--migrate", "--store", &store, "--bank", &url, "--lease", "2s", "--store-timeout", "30s"];
        let options = [&all[..], options].concat();
        let testbeds = [rig.start(&options).await, rig.start(&options).await];
        Self { bank, testbeds, _rig: rig }
    }

    async fn pays_right(&self, store: &str) {
        let hold = self.run("hold", 0, PAYOUTS).await;
        hold.report(store);
        hold.is_sound(|paid| {
            // At most one call, whatever comes of it, and so at most one transfer.
            paid.calls.len() <= 1
                && match paid.status() {
                    Some(StatusCode::OK) => paid.is_the_answer(),
                    Some(StatusCode::PAYMENT_REQUIRED) => paid.transfers.is_empty(),
                    None => paid.transfers.len() <= 1,
                    _ => false,
                }
        });
        let held = hold.paid.iter().filter(|paid| paid.status().is_none());
        let (done, not): (Vec<_>, Vec<_>) = held.partition(|paid| paid.transfers.len() == 1);
        assert!(done.len() >= 50 && not.len() >= 50, "{} held that happened, {} that did not", done.len(), not.len());
        let unknown = self.testbeds[1].steps("?state=unknown").await.len();
        assert_eq!(unknown, done.len() + not.len(), "whatever is held is listed");

        let reconcile = self.run("reconcile", PAYOUTS, PAYOUTS).await;
        reconcile.report(store);
        reconcile.is_sound(Paid::is_resolved_and_right);
        assert!(reconcile.paid.iter().any(|paid| paid.calls.len() > 1), "nothing was ever called again");

        let retry = self.run("retry", 2 * PAYOUTS, PAYOUTS).await;
        retry.report(store);
        retry.is_sound(|paid| {
            paid.is_resolved_and_right() && paid.calls.iter().all(|call| call["key"] == call["reference"])
        });
        let again = retry.paid.iter().filter(|paid| paid.calls.len() > 1 && paid.transfers.len() == 1).count();
        assert!(again >= 50, "only {again} were called again");

        let faults = self.bank.faults().await;
        println!("{store}: the bank counts {faults:?}");
        assert!(faults.len() == 6 && faults.values().all(|count| *count >= LEAST_FAULTS), "{faults:?}");
    }

    /// So many payouts under this policy, of amounts from `first` on, some at a time, each asked for until it is decided or held.
    async fn run(&self, policy: &'static str, first: i64, count: i64) -> Run {
        let began = Instant::now();
        let clients: [Client; 2] = self.testbeds.each_ref().map(|testbed| testbed.client().clone());
        let payouts = stream::iter(first..first + count).map(|n| persist(clients.clone(), policy, n));
        let replies: Vec<(i64, Option<Reply>)> = payouts.buffer_unordered(CLIENTS).collect().await;
        let paid = Paid::of(&self.bank, replies).await;
        Run { policy, paid, took: began.elapsed() }
    }
}

/// Asks one or the other process for a payout, until it is decided or, without an answer, held.
async fn persist(clients: [Client; 2], policy: &str, n: i64) -> (i64, Option<Reply>) {
    const HELD_AFTER: u32 = 3;
    let (key, path) = (format!("{policy}-{n}"), path(policy));
    let give_up = Instant::now() + 2 * PATIENCE;
    let mut unknown = 0;
    for client in clients.iter().cycle() {
        let reply = client.call(Method::POST, &path).key(&key).json(&amount(n)).reply().await;
        match reply.status {
            StatusCode::OK | StatusCode::PAYMENT_REQUIRED => return (n, Some(reply)),
            // Without the guard.
            StatusCode::BAD_GATEWAY => {}
            _ => is_retryable(&reply),
        }
        if policy == "hold" && reply.problem().as_deref() == Some("outcome-unknown") {
            unknown += 1;
            if unknown == HELD_AFTER {
                break;
            }
        }
        assert!(Instant::now() < give_up, "{key}: still {reply:?}");
        sleep(Duration::from_millis(300)).await;
    }
    (n, None)
}

fn by_amount(rows: Vec<Value>) -> BTreeMap<i64, Vec<Value>> {
    let mut by_amount = BTreeMap::<i64, Vec<Value>>::new();
    for row in rows {
        by_amount.entry(row["amount"].as_i64().unwrap()).or_default().push(row);
    }
    by_amount
}

/// What came of one payout: for its client, and at the bank.
#[derive(Debug)]
pub(crate) struct Paid {
    /// None when it is held.
    pub(crate) reply: Option<Reply>,
    pub(crate) transfers: Vec<Value>,
    pub(crate) calls: Vec<Value>,
}

impl Paid {
    /// What the bank knows of these amounts, beside what their clients were told.
    pub(crate) async fn of(bank: &Bank, replies: impl IntoIterator<Item = (i64, Option<Reply>)>) -> Vec<Self> {
        let (transfers, calls) = (by_amount(bank.transfers().await), by_amount(bank.calls().await));
        let of = |rows: &BTreeMap<i64, Vec<Value>>, n| rows.get(&n).cloned().unwrap_or_default();
        let paid = |(n, reply)| Self { reply, transfers: of(&transfers, n), calls: of(&calls, n) };
        replies.into_iter().map(paid).collect()
    }

    fn status(&self) -> Option<StatusCode> {
        self.reply.as_ref().map(|reply| reply.status)
    }

    /// There is one transfer, and it is the one that the client was told of.
    fn is_the_answer(&self) -> bool {
        let told = self.reply.as_ref().map(Reply::json);
        self.transfers.len() == 1 && told.is_some_and(|told| told["transfer"] == self.transfers[0]["transfer"])
    }

    pub(crate) fn is_resolved_and_right(&self) -> bool {
        match self.status() {
            Some(StatusCode::OK) => self.is_the_answer(),
            Some(StatusCode::PAYMENT_REQUIRED) => self.transfers.is_empty(),
            _ => false,
        }
    }
}

#[derive(Debug)]
struct Run {
    policy: &'static str,
    paid: Vec<Paid>,
    took: Duration,
}

impl Run {
    fn faults(&self, is_right: impl Fn(&Paid) -> bool) -> Vec<&Paid> {
        self.paid.iter().filter(|paid| !is_right(paid)).collect()
    }

    #[track_caller]
    fn is_sound(&self, is_right: impl Fn(&Paid) -> bool) {
        let faults = self.faults(is_right);
        assert!(
            faults.is_empty(),
            "{}: {} of {} are wrong, such as {:?}",
            self.policy,
            faults.len(),
            self.paid.len(),
            faults[0]
        );
    }

    fn report(&self, store: &str) {
        let count = |status| self.paid.iter().filter(|paid| paid.status() == status).count();
        let (paid, refused) = (count(Some(StatusCode::OK)), count(Some(StatusCode::PAYMENT_REQUIRED)));
        let calls: usize = self.paid.iter().map(|paid| paid.calls.len()).sum();
        let transfers: usize = self.paid.iter().map(|paid| paid.transfers.len()).sum();
        println!(
            "{store}, {}: {} payouts in {:.0?}: {paid} paid, {refused} refused, {} held; {calls} calls, {transfers} transfers",
            self.policy,
            self.paid.len(),
            self.took,
            count(None),
        );
    }
}
