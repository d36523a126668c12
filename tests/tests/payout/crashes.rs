//! Processes and stores that die while a payout is made.

use std::sync::Mutex;
use std::time::Duration;

use idempotency_testbed::servers::{Postgres, Redis};
use idempotency_testbed::{Fate, Proxy, Testbed, eventually, rig};
use serde_json::json;
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use crate::{
    Payouts, begin, did_not_happen, ends, inspect, is_unknown, path, pay, pay_until_decided, resolve, step, until_step,
    until_unknown,
};

const POLICIES: [(i64, &str); 3] = [(1, "hold"), (2, "reconcile"), (3, "retry")];

/// Lets a worker that kills itself at this moment make a payout.
async fn killed_at(payouts: &Payouts, path: &str, key: &str, of: i64) {
    let mut worker = payouts.worker().await;
    assert!(begin(&worker, path, key, of).await.unwrap().is_none(), "no answer came");
    eventually("it is dead", async || !worker.is_running()).await;
}

#[tokio::test]
async fn killed_before_the_call_is_on_record_it_is_made_by_the_next() {
    let payouts = Payouts::new(rig!()).await;
    for (n, policy) in POLICIES {
        let path = format!("{}&abort=before", path(policy));
        killed_at(&payouts, &path, policy, n).await;
        assert_eq!(payouts.counts(n).await, (0, 0));
        let next = payouts.worker().await;
        assert_eq!(next.steps("").await.len() as i64, n - 1, "nothing is on record");
        assert_eq!(pay_until_decided(&next, &path, policy, n).await.status, 200);
        assert_eq!(payouts.counts(n).await, (1, 1), "{policy}");
    }
}

#[tokio::test]
async fn killed_between_record_and_first_byte_it_is_unknown_and_the_policy_decides() {
    let payouts = Payouts::new(rig!()).await;
    for (n, policy) in POLICIES {
        let path = format!("{}&abort=calling", path(policy));
        killed_at(&payouts, &path, policy, n).await;
        let next = payouts.worker().await;
        assert_eq!(step(&next, policy).await["call"], 1, "it is on record before anything is sent");
        if policy == "hold" {
            until_unknown(&next, &path, policy, n).await;
            is_unknown(&pay(&next, &path, policy, n).await);
            assert_eq!(payouts.counts(n).await, (0, 0));
            // Its process is known dead, and the bank knows nothing.
            let step = step(&next, policy).await;
            assert!(resolve(&next, &step, &did_not_happen(&step)).await.status.is_success());
        }
        assert_eq!(pay_until_decided(&next, &path, policy, n).await.status, 200);
        assert_eq!(payouts.counts(n).await, (1, 1), "{policy}");
        assert_eq!(ends(&inspect(&next, policy).await), ["none", "done"]);
    }
}

/// PWR-PY-8049: the bank committed, we died, the lease is over, and the duplicate comes.
#[tokio::test]
async fn case_93_killed_between_the_banks_commit_and_our_record_it_is_blocked_found_or_replayed_by_the_bank() {
    let payouts = Payouts::new(rig!()).await;
    for (n, policy) in POLICIES {
        let path = format!("{}&abort=committed", path(policy));
        killed_at(&payouts, &path, policy, n).await;
        assert_eq!(payouts.counts(n).await, (1, 1));
        let next = payouts.worker().await;
        if policy == "hold" {
            until_unknown(&next, &path, policy, n).await;
            is_unknown(&pay(&next, &path, policy, n).await);
            let step = step(&next, policy).await;
            let transfer = payouts.bank.transfers_of(n).await[0]["transfer"].clone();
            let finding = json!({
                "call": 1, "who": "ann", "why": "seen at the bank", "happened": true,
                "result": { "transfer": transfer },
            });
            assert!(resolve(&next, &step, &finding).await.status.is_success());
        }
        let paid = pay_until_decided(&next, &path, policy, n).await;
        assert_eq!(paid.status, 200);
        assert_eq!(paid.json()["transfer"], payouts.bank.transfers_of(n).await[0]["transfer"]);
        let calls = if policy == "retry" { 2 } else { 1 };
        assert_eq!(payouts.counts(n).await, (1, calls), "{policy}");
    }
}

/// The other half of PWR-PY-8049: what is on record is replayed.
#[tokio::test]
async fn case_93_killed_between_the_steps_record_and_the_answers_it_is_replayed() {
    let payouts = Payouts::new(rig!()).await;
    for (n, policy) in POLICIES {
        let path = format!("{}&abort=after", path(policy));
        killed_at(&payouts, &path, policy, n).await;
        let next = payouts.worker().await;
        let paid = pay_until_decided(&next, &path, policy, n).await;
        assert_eq!((paid.status.as_u16(), payouts.counts(n).await), (200, (1, 1)), "{policy}");
        assert_eq!(paid.json()["transfer"], payouts.bank.transfers_of(n).await[0]["transfer"]);
    }
}

#[tokio::test]
async fn killed_while_it_reconciles_the_next_one_asks_again() {
    let payouts = Payouts::new(rig!()).await;
    let link = Proxy::to(payouts.bank.server().addr().port());
    let bank = format!("http://127.0.0.1:{}", link.port());
    for (n, fault) in (1..).zip(["commit-then-reset", "reset"]) {
        let store = payouts.rig.sqlite_store();
        let mut one = payouts.rig.start(&["--migrate", "--store", &store, "--bank", &bank]).await;
        payouts.bank.plan(n, &[fault]).await;
        is_unknown(&pay(&one, &path("reconcile"), fault, n).await);
        let asked = link.on_reply_to("GET /transfers", 1, Fate::Hold);
        tokio::time::sleep(Duration::from_millis(600)).await;
        let cut = begin(&one, &path("reconcile"), fault, n);
        eventually("the bank is asked", async || asked.has_fired()).await;
        one.kill();
        assert!(cut.await.unwrap().is_none());
        link.heal();
        let next = payouts.worker().await;
        assert_eq!(step(&next, fault).await["state"], "unknown");
        assert_eq!(pay_until_decided(&next, &path("reconcile"), fault, n).await.status, 200);
        let calls = if fault == "reset" { 2 } else { 1 };
        assert_eq!(payouts.counts(n).await, (1, calls), "{fault}");
    }
}

#[tokio::test]
async fn a_bank_that_cannot_be_asked_or_does_not_answer_leaves_it_unknown() {
    let mut payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let address = payouts.bank.server().addr().to_string();
    payouts.bank.plan(7, &["commit-then-reset"]).await;
    let path = path("reconcile");
    is_unknown(&pay(&worker, &path, "k", 7).await);
    payouts.bank.kill();
    tokio::time::sleep(Duration::from_millis(600)).await;
    for _ in 0..2 {
        is_unknown(&pay(&worker, &path, "k", 7).await);
    }
    payouts.bank = payouts.rig.start_bank(&["--listen", &address]).await;
    payouts.bank.pause();
    is_unknown(&pay(&worker, &path, "k", 7).await);
    payouts.bank.resume();
    assert_eq!(pay_until_decided(&worker, &path, "k", 7).await.status, 200);
    assert_eq!(payouts.counts(7).await, (1, 1));
}

/// A worker alone on a store that is about to be lost, and the bank's slow answer to its call.
async fn store_lost(
    payouts: &Payouts,
    worker: &Testbed,
    (n, policy): (i64, &str),
    lose: impl AsyncFnOnce(),
    back: impl AsyncFnOnce(),
) {
    payouts.bank.plan(n, &["slow"]).await;
    let answer = begin(worker, &path(policy), policy, n);
    payouts.called(n, 1).await;
    lose().await;
    let told = answer.await.unwrap().expect("an answer");
    // No success is told of that is not on record.
    assert_eq!(told.status, 503, "{told:?}");
    assert!(told.retry_after().is_some(), "{told:?}");
    back().await;
    // This process knows how the call ended, and tells the store as soon as it can.
    until_step(worker, policy, "succeeded").await;
    let paid = pay_until_decided(worker, &path(policy), policy, n).await;
    assert_eq!((paid.status.as_u16(), payouts.counts(n).await), (200, (1, 1)), "{policy}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_lost_between_call_and_outcome() {
    let payouts = Payouts::new(rig!()).await;
    let server = Mutex::new(Postgres::start());
    let store = server.lock().unwrap().create_database("store");
    let bank = payouts.bank.url();
    let worker = payouts.rig.start(&["--migrate", "--store", &store, "--bank", &bank]).await;
    for which in POLICIES {
        let (lose, back) = (async || server.lock().unwrap().kill(), async || server.lock().unwrap().restart());
        store_lost(&payouts, &worker, which, lose, back).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_lost_between_call_and_outcome() {
    let payouts = Payouts::new(rig!()).await;
    let server = Mutex::new(Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]));
    let store = server.lock().unwrap().url();
    let bank = payouts.bank.url();
    let worker = payouts.rig.start(&["--store", &store, "--bank", &bank]).await;
    for which in POLICIES {
        let (lose, back) = (async || server.lock().unwrap().stop(), async || server.lock().unwrap().restart());
        store_lost(&payouts, &worker, which, lose, back).await;
    }
}

/// Somebody else writes to the file for longer than the store is waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_lost_between_call_and_outcome() {
    let payouts = Payouts::new(rig!()).await;
    let store = payouts.rig.sqlite_store();
    let bank = payouts.bank.url();
    let options = ["--migrate", "--store", &store, "--bank", &bank, "--store-timeout", "300ms"];
    let worker = payouts.rig.start(&options).await;
    for which in POLICIES {
        let other = SqliteConnection::connect(&store).await.unwrap();
        let other = tokio::sync::Mutex::new(other);
        let run = async |sql: &'static str| {
            sqlx::raw_sql(sql).execute(&mut *other.lock().await).await.unwrap();
        };
        store_lost(&payouts, &worker, which, async || run("BEGIN IMMEDIATE").await, async || run("ROLLBACK").await)
            .await;
    }
}

/// Store and process are both gone: nobody is left who knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_and_process_lost_between_call_and_outcome() {
    let payouts = Payouts::new(rig!()).await;
    let mut server = Postgres::start();
    let store = server.create_database("store");
    let bank = payouts.bank.url();
    let options = ["--migrate", "--store", &store, "--bank", &bank];
    for (n, policy) in (1..).zip(["hold", "reconcile"]) {
        let mut worker = payouts.rig.start(&options).await;
        payouts.bank.plan(n, &["slow"]).await;
        let cut = begin(&worker, &path(policy), policy, n);
        payouts.called(n, 1).await;
        server.kill();
        worker.kill();
        assert!(cut.await.unwrap().is_none());
        server.restart();
        let next = payouts.rig.start(&options).await;
        if policy == "hold" {
            until_unknown(&next, &path(policy), policy, n).await;
        } else {
            assert_eq!(pay_until_decided(&next, &path(policy), policy, n).await.status, 200);
        }
        // A caller that is gone is one the bank may drop: what it did is what it says.
        let (transfers, calls) = payouts.counts(n).await;
        assert!(transfers <= 1 && calls <= 2, "{policy}: {transfers} transfers by {calls} calls");
        assert!(policy == "reconcile" || calls == 1);
    }
}
