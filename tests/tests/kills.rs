//! Effect and outcome in one transaction: whenever a process is killed, each key has one effect in the end, and its client an answer.
#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use idempotency_testbed::servers::{MariaDb, Postgres};
use idempotency_testbed::{Client, Reply, Rig, Testbed, rig};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// Each switch so often: what lands before the commit, and after it, is counted by the ledger.
const KILLS: usize = 12;
const KEYS: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_a_kill_around_the_commit_leaves_one_effect_in_sqlite() {
    let rig = rig!();
    kills_around_the_commit(&Place::sqlite(&rig)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_a_kill_around_the_commit_leaves_one_effect_in_postgresql() {
    let server = Postgres::start();
    let rig = rig!();
    kills_around_the_commit(&Place::new(&rig, server.create_database("shop"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_38_a_kill_around_the_commit_leaves_one_effect_in_mariadb() {
    let server = MariaDb::start();
    let rig = rig!();
    kills_around_the_commit(&Place::new(&rig, server.create_database("shop"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_39_kills_at_any_moment_leave_one_effect_in_mariadb() {
    let server = MariaDb::start();
    let rig = rig!();
    kills_at_any_moment(&Place::new(&rig, server.create_database("shop"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_39_kills_at_any_moment_leave_one_effect_in_sqlite() {
    let rig = rig!();
    kills_at_any_moment(&Place::sqlite(&rig)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_39_kills_at_any_moment_leave_one_effect_in_postgresql() {
    let server = Postgres::start();
    let rig = rig!();
    kills_at_any_moment(&Place::new(&rig, server.create_database("shop"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_kills_without_protection_have_double_effects() {
    let rig = rig!();
    let place = Place::sqlite(&rig);
    let mut testbed = place.start(&["--unprotected"]).await;
    lose(&testbed, "/tx-charge?abort=committed", "k").await;
    testbed = place.restart(testbed, &["--unprotected"]).await;
    until_answered(&testbed, "/tx-charge", "k").await;
    assert_eq!(testbed.effects("k").await, 2, "the ledger does not see a double effect");
}

async fn kills_around_the_commit(place: &Place<'_>) {
    let (mut before, mut after) = (0, 0);
    let mut testbed = place.start(&[]).await;
    for switch in ["before", "after", "committed"] {
        for n in 0..KILLS {
            let key = format!("{switch}-{n}");
            let path = format!("/tx-charge?abort={switch}");
            lose(&testbed, &path, &key).await;
            testbed = place.restart(testbed, &[]).await;
            match testbed.effects(&key).await {
                0 => before += 1,
                1 => after += 1,
                more => panic!("{more} effects of {key}"),
            }
            let answer = until_answered(&testbed, &path, &key).await;
            assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
            let rows = testbed.effect_rows(&format!("?key={key}")).await;
            assert_eq!(rows.len(), 1, "{rows:?}");
            assert_eq!(answer.json()["id"], rows[0]["seq"], "the answer is another effect's");
        }
    }
    assert!(before >= 10 && after >= 10, "{before} kills landed before the commit, {after} after it");
}

async fn kills_at_any_moment(place: &Place<'_>) {
    let testbeds = [Mutex::new(None), Mutex::new(None)];
    let (kills, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let mut running = [place.start(&[]).await, place.start(&[]).await];
    for (slot, testbed) in testbeds.iter().zip(&running) {
        *slot.lock().unwrap() = Some(testbed.client().clone());
    }
    let clients = async {
        join_all((0..KEYS).map(|n| {
            let (testbeds, lost) = (&testbeds, &lost);
            async move {
                // A few at a time, for as long as there are kills.
                sleep(Duration::from_millis(n * 60)).await;
                persist(testbeds, n, lost).await;
            }
        }))
        .await;
        done.store(true, Ordering::SeqCst);
    };
    let killer = async {
        while !done.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(rand::random_range(20..250))).await;
            let which = rand::random_range(0..2_usize);
            running[which].kill();
            kills.fetch_add(1, Ordering::SeqCst);
            running[which] = place.start(&[]).await;
            *testbeds[which].lock().unwrap() = Some(running[which].client().clone());
        }
    };
    tokio::join!(clients, killer);
    let (kills, lost) = (kills.into_inner(), lost.into_inner());
    assert!(kills >= 10 && lost >= 10, "{kills} kills, {lost} answers lost: this proves nothing");
    for n in 0..KEYS {
        assert_eq!(running[0].effects(&format!("any-{n}")).await, 1, "of key {n}, after {kills} kills");
    }
}

/// Posts a charge until it is answered for good, wherever a testbed runs.
async fn persist(testbeds: &[Mutex<Option<Client>>; 2], n: u64, lost: &AtomicU64) {
    let give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        let client = testbeds[rand::random_range(0..2_usize)].lock().unwrap().clone().unwrap();
        let call = client.call(http::Method::POST, "/tx-charge?before=40&after=40");
        match call.key(&format!("any-{n}")).json(&json!({ "amount": n })).send().await {
            Ok(reply) if reply.status == StatusCode::CREATED => return,
            Ok(reply) => assert!(is_retryable(&reply), "{reply:?}"),
            Err(_) => drop(lost.fetch_add(1, Ordering::SeqCst)),
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("key {n} was never answered");
}

/// Where store and ledger are in one database.
struct Place<'r> {
    rig: &'r Rig,
    url: String,
}

impl<'r> Place<'r> {
    fn new(rig: &'r Rig, url: String) -> Self {
        Self { rig, url }
    }

    fn sqlite(rig: &'r Rig) -> Self {
        Self::new(rig, rig.sqlite_store())
    }

    async fn start(&self, options: &[&str]) -> Testbed {
        let url = self.url.as_str();
        // A killed attempt holds its key for five leases at most, the transaction limit.
        let options = [&["--migrate", "--store", url, "--ledger", url, "--lease", "200ms"], options].concat();
        self.rig.start_alone(&[&options[..], &["--store-timeout", "10s"]].concat()).await
    }

    /// Starts a new one in the place of one that is gone.
    async fn restart(&self, gone: Testbed, options: &[&str]) -> Testbed {
        let ended = gone.ended().await;
        assert!(!ended.status.success(), "it was to be killed");
        self.start(options).await
    }
}

/// Posts what kills its server before it is answered.
async fn lose(testbed: &Testbed, path: &str, key: &str) {
    let call = testbed.call(http::Method::POST, path).key(key).json(&json!({ "amount": 5 }));
    let answer = call.send().await;
    assert!(answer.is_err(), "{answer:?}");
}

/// Asks until there is an answer that is not to be asked for again.
async fn until_answered(testbed: &Testbed, path: &str, key: &str) -> Reply {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let reply = testbed.post(path, key, &json!({ "amount": 5 })).await;
        if !is_retryable(&reply) {
            return reply;
        }
        assert!(Instant::now() < give_up, "still {reply:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn is_retryable(reply: &Reply) -> bool {
    matches!(reply.status, StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE) && reply.retry_after().is_some()
}

const PATIENCE: Duration = Duration::from_secs(60);
