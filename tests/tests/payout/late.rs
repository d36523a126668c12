//! Workers that stand still, and news that comes late.

use std::time::Duration;

use idempotency_testbed::servers::Postgres;
use idempotency_testbed::{Proxy, Testbed, eventually, rig};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    Payouts, begin, did_not_happen, ends, inspect, is_retryable, is_unknown, path, pay, pay_until_decided, resolve,
    step, until_decided, until_step, until_unknown,
};

/// Two workers on one step, the first stopped across its call.
#[tokio::test]
async fn a_worker_that_stood_still_across_its_call_changes_nothing_when_it_wakes() {
    let payouts = Payouts::new(rig!()).await;
    for (n, policy) in (1..).zip(["hold", "reconcile"]) {
        let (mut one, two) = (payouts.worker().await, payouts.worker().await);
        payouts.bank.plan(n, &["slow"]).await;
        let first = begin(&one, &path(policy), policy, n);
        payouts.called(n, 1).await;
        one.pause();
        eventually("it happens", async || payouts.counts(n).await == (1, 1)).await;
        let told = if policy == "hold" {
            until_unknown(&two, &path(policy), policy, n).await;
            None
        } else {
            Some(pay_until_decided(&two, &path(policy), policy, n).await)
        };
        one.resume();
        let late = first.await.unwrap().expect("an answer");
        match &told {
            // What is on record is the only answer.
            Some(told) if late.retry_after().is_none() => assert_eq!(late.json(), told.json(), "{late:?}"),
            _ => is_retryable(&late),
        }
        match told {
            None => is_unknown(&pay(&two, &path(policy), policy, n).await),
            Some(told) => assert_eq!(pay(&one, &path(policy), policy, n).await.json(), told.json()),
        }
        assert_eq!(payouts.counts(n).await, (1, 1), "{policy}");
    }
}

/// A worker whose link to the store is cut while the bank does what it asked for, and another one that has taken over.
struct CutOff {
    payouts: Payouts,
    link: Proxy,
    one: Testbed,
    two: Testbed,
    _server: Postgres,
}

impl CutOff {
    async fn new(payouts: Payouts, policy: &str) -> Self {
        let server = Postgres::start();
        let store = server.create_database("store");
        let (before, port) = store.rsplit_once('/').unwrap().0.rsplit_once(':').unwrap();
        let link = Proxy::to(port.parse().unwrap());
        let through = format!("{before}:{}/store", link.port());
        let bank = payouts.bank.url();
        let options = ["--migrate", "--bank", &bank, "--store-timeout", "500ms", "--store"];
        let two = payouts.rig.start(&[&options[..], &[&store]].concat()).await;
        let one = payouts.rig.start(&[&options[..], &[&through]].concat()).await;
        let first = begin(&one, &path(policy), "k", 7);
        payouts.called(7, 1).await;
        link.cut();
        eventually("it happens", async || payouts.counts(7).await == (1, 1)).await;
        let told = first.await.unwrap().expect("an answer");
        assert_eq!(told.status, 503, "no success is told of that is not on record: {told:?}");
        Self { payouts, link, one, two, _server: server }
    }

    /// How many contradictions its log shows.
    fn alarms(&self) -> usize {
        self.one.stderr().matches("may have happened twice").count()
    }

    async fn calls(&self) -> Value {
        inspect(&self.two, "k").await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_before_anybody_found_out_is_the_outcome() {
    let payouts = Payouts::new(rig!()).await;
    payouts.bank.plan(7, &["slow"]).await;
    let cut_off = CutOff::new(payouts, "hold").await;
    until_unknown(&cut_off.two, &path("hold"), "k", 7).await;
    cut_off.link.heal();
    until_step(&cut_off.two, "k", "succeeded").await;
    let paid = pay_until_decided(&cut_off.two, &path("hold"), "k", 7).await;
    assert_eq!(paid.status, 200);
    assert_eq!(paid.json()["transfer"], cut_off.payouts.bank.transfers_of(7).await[0]["transfer"]);
    assert_eq!((ends(&cut_off.calls().await), cut_off.alarms()), (vec!["done"], 0));
    assert_eq!(cut_off.payouts.counts(7).await, (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_after_somebody_said_no_is_the_outcome_and_an_alarm() {
    let payouts = Payouts::new(rig!()).await;
    payouts.bank.plan(7, &["slow"]).await;
    let cut_off = CutOff::new(payouts, "hold").await;
    until_unknown(&cut_off.two, &path("hold"), "k", 7).await;
    let seen = step(&cut_off.two, "k").await;
    assert!(resolve(&cut_off.two, &seen, &did_not_happen(&seen)).await.status.is_success());
    assert_eq!(step(&cut_off.two, "k").await["state"], "retryable");
    cut_off.link.heal();
    until_step(&cut_off.two, "k", "succeeded").await;
    assert_eq!(pay_until_decided(&cut_off.two, &path("hold"), "k", 7).await.status, 200);
    assert_eq!(cut_off.payouts.counts(7).await, (1, 1), "nothing is called after it");
    eventually("an alarm", async || cut_off.alarms() == 1).await;
    assert_eq!(ends(&cut_off.calls().await), ["done"]);
}

/// The bank's settle time is a lie: asked in time, it says no of what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_after_a_hook_said_no_and_another_call_was_made_is_kept_and_an_alarm() {
    let rig = rig!();
    let bank = rig.start_bank(&["--settle", "1h"]).await;
    bank.plan(7, &["slow"]).await;
    let cut_off = CutOff::new(Payouts { rig, bank }, "reconcile").await;
    let paid = pay_until_decided(&cut_off.two, &path("reconcile"), "k", 7).await;
    assert_eq!(paid.status, 200);
    // As the docs say: asking is not at most once.
    assert_eq!(cut_off.payouts.counts(7).await, (2, 2));
    assert_eq!(ends(&cut_off.calls().await), ["none", "done"]);
    cut_off.link.heal();
    eventually("the evidence", async || ends(&cut_off.calls().await) == ["done", "done"]).await;
    eventually("an alarm", async || cut_off.alarms() == 1).await;
    assert!(pay(&cut_off.two, &path("reconcile"), "k", 7).await.is_replay_of(&paid), "there is one answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_while_another_call_is_made_that_then_fails_is_the_outcome() {
    let rig = rig!();
    let bank = rig.start_bank(&["--settle", "1h"]).await;
    bank.plan(7, &["slow", "stall"]).await;
    let cut_off = CutOff::new(Payouts { rig, bank }, "reconcile").await;
    let client = cut_off.two.client().clone();
    let second = tokio::spawn(async move { until_decided(&client, &path("reconcile"), "k", 7).await });
    cut_off.payouts.called(7, 2).await;
    cut_off.link.heal();
    let paid = second.await.unwrap();
    assert_eq!(paid.status, 200);
    let first = &cut_off.payouts.bank.transfers_of(7).await[0];
    assert_eq!(paid.json()["transfer"], first["transfer"]);
    assert_eq!(ends(&cut_off.calls().await)[..2], ["done", "unknown"]);
    assert_eq!(cut_off.payouts.counts(7).await, (1, 2));
    eventually("an alarm", async || cut_off.alarms() == 1).await;
}

/// The bank does it when nobody expects it any more. This is what `Reconcile` cannot promise, and `Hold` and a key can.
#[tokio::test]
async fn a_bank_that_is_later_than_it_says_pays_twice_only_where_the_docs_say_so() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    for (n, (policy, transfers)) in (1..).zip([("hold", 1), ("reconcile", 2), ("retry", 1)]) {
        payouts.bank.plan(n, &["late"]).await;
        if policy == "hold" {
            is_unknown(&pay(&worker, &path(policy), policy, n).await);
        } else {
            assert_eq!(pay_until_decided(&worker, &path(policy), policy, n).await.status, 200);
        }
        sleep(Duration::from_millis(2700)).await;
        let calls = if policy == "hold" { 1 } else { 2 };
        assert_eq!(payouts.counts(n).await, (transfers, calls), "{policy}");
    }
    is_unknown(&pay(&worker, &path("hold"), "hold", 1).await);
}
