//! Counters behind leases and fences: processes are stopped for longer than their leases while they think about what to write, and
//! no addition is lost.
#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use idempotency_testbed::servers::{MariaDb, Postgres};
use idempotency_testbed::{Client, Rig, Testbed, rig};
use serde_json::json;
use tokio::time::{Instant, sleep};

const PROCESSES: usize = 6;
const COUNTERS: usize = 3;
const LEASE: Duration = Duration::from_millis(300);
/// Additions begin for so long.
const RUN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_holders_lose_no_addition_in_sqlite() {
    let rig = rig!();
    let (store, ledger) = (rig.sqlite_store(), rig.ledger());
    Run::new(&rig, &store, &ledger, &[]).await.go(RUN).await.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_holders_lose_no_addition_in_postgresql() {
    let server = Postgres::start();
    let url = server.create_database("shop");
    let rig = rig!();
    Run::new(&rig, &url, &url, &[]).await.go(RUN).await.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_holders_lose_no_addition_in_mariadb() {
    let server = MariaDb::start();
    let url = server.create_database("shop");
    let rig = rig!();
    Run::new(&rig, &url, &url, &[]).await.go(RUN).await.is_sound().await;
}

/// The lease store is another database than the one that is guarded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_holders_lose_no_addition_with_leases_elsewhere() {
    let server = Postgres::start();
    let rig = rig!();
    let (store, ledger) = (rig.sqlite_store(), server.create_database("shop"));
    Run::new(&rig, &store, &ledger, &[]).await.go(RUN / 3).await.is_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_without_protection_loses_additions() {
    let rig = rig!();
    let (store, ledger) = (rig.sqlite_store(), rig.ledger());
    let run = Run::new(&rig, &store, &ledger, &["--unprotected"]).await.go(RUN / 12).await;
    let mut lost = 0;
    for counter in 0..COUNTERS {
        lost += run.applied[counter].load(Ordering::SeqCst) - run.value(counter).await;
    }
    assert!(lost != 0, "every addition is there: this run would not notice a lost one");
}

/// Processes, what clients had applied, and what they were told.
struct Run {
    testbeds: Vec<Testbed>,
    applied: [AtomicI64; COUNTERS],
    superseded: AtomicU64,
    pauses: AtomicU64,
}

impl Run {
    async fn new(rig: &Rig, store: &str, ledger: &str, options: &[&str]) -> Self {
        let mut testbeds = Vec::new();
        for _ in 0..PROCESSES {
            let common =
                ["--migrate", "--store", store, "--ledger", ledger, "--lease", "300ms", "--store-timeout", "10s"];
            testbeds.push(rig.start_alone(&[&common[..], options].concat()).await);
        }
        Self { testbeds, applied: Default::default(), superseded: AtomicU64::new(0), pauses: AtomicU64::new(0) }
    }

    /// Clients add, a process is stopped every now and then, and at the end all work is let to its end.
    async fn go(mut self, length: Duration) -> Self {
        let end = Instant::now() + length;
        let clients: Vec<Client> = self.testbeds.iter().map(|testbed| testbed.client().clone()).collect();
        let Self { testbeds, applied, superseded, pauses } = &mut self;
        let (applied, superseded) = (&*applied, &*superseded);
        let additions = clients.iter().enumerate().flat_map(|(process, client)| {
            (0..2).map(move |thread| async move {
                let mut n = 0;
                while Instant::now() < end {
                    let counter = rand::random_range(0..COUNTERS);
                    let amount = rand::random_range(1..100);
                    let key = format!("{process}-{thread}-{n}");
                    add(client, counter, amount, &key, superseded).await;
                    applied[counter].fetch_add(amount, Ordering::SeqCst);
                    n += 1;
                }
            })
        });
        let pauses = &*pauses;
        // One of every two stands still for most of the time.
        let stops = testbeds.chunks_mut(2).map(|two| async move {
            while Instant::now() < end {
                let stopped = &mut two[rand::random_range(0..2_usize)];
                stopped.pause();
                sleep(LEASE.mul_f64(rand::random_range(1.1..3.0))).await;
                stopped.resume();
                pauses.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(rand::random_range(100..300))).await;
            }
        });
        tokio::join!(join_all(additions), join_all(stops));
        self
    }

    async fn value(&self, counter: usize) -> i64 {
        let reply = self.testbeds[0].get(&format!("/counter/c{counter}")).await;
        reply.json()["value"].as_i64().unwrap()
    }

    async fn is_sound(&self) {
        let pauses = self.pauses.load(Ordering::SeqCst);
        for counter in 0..COUNTERS {
            let applied = self.applied[counter].load(Ordering::SeqCst);
            assert_eq!(self.value(counter).await, applied, "counter {counter} after {pauses} pauses");
        }
        let rows = self.testbeds[0].effect_rows("?route=/counter/%7Bresource%7D").await;
        for counter in 0..COUNTERS {
            let name = format!("c{counter}");
            let rows: Vec<_> = rows.iter().filter(|row| row["resource"] == name).collect();
            let tokens: Vec<_> = rows.iter().map(|row| row["token"].as_u64().unwrap()).collect();
            assert!(tokens.is_sorted(), "an older token wrote after a newer one: {tokens:?}");
            let sum: i64 = rows.iter().map(|row| row["amount"].as_i64().unwrap()).sum();
            assert_eq!(sum, self.applied[counter].load(Ordering::SeqCst), "an addition has two effects, or none");
        }
        let superseded = self.superseded.load(Ordering::SeqCst);
        assert!(superseded >= 20, "{superseded} superseded in {pauses} pauses: this proves nothing");
    }
}

/// Adds until it is answered that it was added.
async fn add(client: &Client, counter: usize, amount: i64, key: &str, superseded: &AtomicU64) {
    let give_up = Instant::now() + Duration::from_secs(120);
    let path = format!("/counter/c{counter}?think=200");
    loop {
        assert!(Instant::now() < give_up, "{key} was never answered");
        let call = client.call(Method::POST, &path).key(key).json(&json!({ "amount": amount }));
        match call.send().await {
            Ok(reply) if reply.status == StatusCode::OK => return,
            Ok(reply) if reply.problem().as_deref() == Some("fencing-token-superseded") => {
                assert!(reply.json()["current_token"].as_u64().is_some(), "{reply:?}");
                superseded.fetch_add(1, Ordering::SeqCst);
            }
            Ok(reply) => assert!(reply.retry_after().is_some(), "{reply:?}"),
            Err(_) => {}
        }
        sleep(Duration::from_millis(20)).await;
    }
}
