//! Many duplicates at once: whatever the store and however many processes, each key has one effect, and nobody is told
//! anything but "in flight" or the winner's answer.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use http::StatusCode;
use idempotency_testbed::servers::{MariaDb, Postgres, Redis, RedisCluster};
use idempotency_testbed::{Client, Reply, Testbed, rig};
use serde_json::json;

const KEYS: u64 = 200;
const DUPLICATES: usize = 50;

/// On a busy machine a store or a renewal may be late: that is another test.
const PATIENT: &[&str] = &["--store-timeout", "30s", "--lease", "30s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_memory() {
    let rig = rig!();
    let testbed = rig.start(PATIENT).await;
    storm(&[&testbed], KEYS).await.is_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_sqlite() {
    let rig = rig!();
    let testbed = rig.start_on_sqlite(PATIENT).await;
    storm(&[&testbed], KEYS).await.is_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_two_processes_on_one_sqlite_file() {
    let rig = rig!();
    let (one, two) = (rig.start_on_sqlite(PATIENT).await, rig.start_on_sqlite(PATIENT).await);
    let storm = storm(&[&one, &two], KEYS).await;
    storm.is_sound();
    let mut processes: Vec<u64> = one.effect_rows("").await.iter().filter_map(|row| row["process"].as_u64()).collect();
    processes.sort_unstable();
    processes.dedup();
    assert_eq!(processes.len(), 2, "one process won every key: the two never met");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_two_processes_on_postgresql() {
    let server = Postgres::start();
    let url = server.create_database("store");
    let rig = rig!();
    let options = [&["--migrate", "--store", url.as_str()], PATIENT].concat();
    let (one, two) = (rig.start(&options).await, rig.start(&options).await);
    let storm = storm(&[&one, &two], KEYS).await;
    storm.is_sound();
    let records = server.sql("store", "SELECT count(*), count(DISTINCT state) FROM idempotency_records");
    assert_eq!(records, format!("{KEYS}|1"), "one record for each key, all completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_two_processes_on_mariadb() {
    let server = MariaDb::start();
    let url = server.create_database("store");
    let rig = rig!();
    let options = [&["--migrate", "--store", url.as_str()], PATIENT].concat();
    let (one, two) = (rig.start(&options).await, rig.start(&options).await);
    let storm = storm(&[&one, &two], KEYS).await;
    storm.is_sound();
    let records = server.sql("store", "SELECT COUNT(*), COUNT(DISTINCT state) FROM idempotency_records");
    assert_eq!(records, format!("{KEYS}\t1"), "one record for each key, all completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_two_processes_on_redis() {
    let server = Redis::start();
    let rig = rig!();
    let url = server.url();
    let options = [&["--store", url.as_str()], PATIENT].concat();
    let (one, two) = (rig.start(&options).await, rig.start(&options).await);
    storm(&[&one, &two], KEYS).await.is_sound();
    assert_eq!(server.cli(&["DBSIZE"]), KEYS.to_string(), "one record for each key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_in_two_processes_on_a_cluster() {
    let cluster = RedisCluster::start();
    let rig = rig!();
    let url = cluster.url().replacen("redis://", "redis+cluster://", 1);
    let options = [&["--store", url.as_str()], PATIENT].concat();
    let (one, two) = (rig.start(&options).await, rig.start(&options).await);
    storm(&[&one, &two], KEYS).await.is_sound();
    let count = |node| cluster.node(node).cli(&["DBSIZE"]).parse::<u64>().expect("a number");
    assert_eq!((0..3).map(count).sum::<u64>(), KEYS, "one record for each key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_often_late_leads_to_no_double_effect() {
    let rig = rig!();
    let hasty = &["--store-timeout", "4ms"];
    let (one, two) = (rig.start_on_sqlite(hasty).await, rig.start_on_sqlite(hasty).await);
    let storm = storm(&[&one, &two], 40).await;
    let statuses = storm.by_key.iter().flatten().map(|reply| reply.status);
    let late = statuses.filter(|status| *status == StatusCode::SERVICE_UNAVAILABLE).count();
    assert!(late > 0, "the store was never late: this proves nothing");
    for n in 0..storm.keys {
        let effects = one.effects(&format!("storm-{n}")).await;
        assert!(effects <= 1, "{effects} effects of one key");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_storm_without_protection_has_double_effects() {
    let rig = rig!();
    let testbed = rig.start(&["--unprotected"]).await;
    let storm = storm(&[&testbed], 10).await;
    assert!(storm.effects > storm.keys, "{} effects of {} keys", storm.effects, storm.keys);
    assert!(storm.faults().iter().any(|fault| fault.contains("effects")), "the storm does not notice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_with_a_memory_store_each_have_double_effects() {
    let rig = rig!();
    let (one, two) = (rig.start(&[]).await, rig.start(&[]).await);
    let storm = storm(&[&one, &two], 10).await;
    assert_eq!(storm.effects, 2 * storm.keys, "each process has a history of its own");
    assert!(!storm.faults().is_empty(), "the storm does not notice");
}

/// What came of a storm.
#[derive(Debug)]
struct Storm {
    keys: u64,
    effects: u64,
    by_key: Vec<Vec<Reply>>,
    /// One more duplicate of each key, when all was over.
    late: Vec<Reply>,
}

/// Sends all duplicates of a key at once, of four keys at a time, in turn to each of the testbeds.
async fn storm(testbeds: &[&Testbed], keys: u64) -> Storm {
    let clients: Arc<[Client]> = testbeds.iter().map(|testbed| testbed.client().clone()).collect();
    let of_key = |n: u64| {
        let clients = Arc::clone(&clients);
        let task = tokio::spawn(async move {
            let duplicates = (0..DUPLICATES).map(|duplicate| charge(&clients[duplicate % clients.len()], n));
            join_all(duplicates).await
        });
        async { task.await.expect("a storm") }
    };
    let by_key: Vec<Vec<Reply>> = stream::iter(0..keys).map(of_key).buffered(4).collect().await;
    let effects = testbeds[0].all_effects().await;
    let late = join_all((0..keys).map(|n| charge(&clients[0], n))).await;
    Storm { keys, effects, by_key, late }
}

async fn charge(client: &Client, n: u64) -> Reply {
    client.post("/charge?before=5", &format!("storm-{n}"), &json!({ "amount": n })).await
}

impl Storm {
    fn is_sound(&self) {
        let faults = self.faults();
        assert!(faults.is_empty(), "{} faults, such as {}", faults.len(), faults[0]);
    }

    /// Everything that must not be.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.effects != self.keys {
            faults.push(format!("{} effects of {} keys", self.effects, self.keys));
        }
        for (replies, late) in self.by_key.iter().zip(&self.late) {
            let winners: Vec<&Reply> = replies.iter().filter(|reply| is_first_answer(reply)).collect();
            let [winner] = winners[..] else {
                faults.push(format!("{} first answers", winners.len()));
                continue;
            };
            let losers = replies.iter().filter(|reply| !is_first_answer(reply));
            let odd = losers.filter(|reply| !reply.is_in_flight() && !reply.is_replay_of(winner));
            faults.extend(odd.map(|reply| format!("a loser was told {reply:?}")));
            if !late.is_replay_of(winner) {
                faults.push(format!("a late duplicate was told {late:?}, the first {winner:?}"));
            }
        }
        if !self.by_key.iter().flatten().any(Reply::is_in_flight) {
            faults.push("no two requests ever met: this proves nothing".to_owned());
        }
        faults
    }
}

fn is_first_answer(reply: &Reply) -> bool {
    reply.status == StatusCode::CREATED && !reply.is_replayed()
}
