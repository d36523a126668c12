//! `/payout` keeps its contract.

use idempotency_testbed::{eventually, rig};
use serde_json::json;

use crate::{Payouts, amount, inspect, is_unknown, path, pay, pay_until_decided, step};

#[tokio::test]
async fn a_payout_is_one_transfer_and_its_answer_is_replayed() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    for (n, policy) in (1..).zip(["hold", "reconcile", "retry"]) {
        let first = pay(&worker, &path(policy), policy, n).await;
        assert_eq!(first.status, 200, "{first:?}");
        let transfer = &payouts.bank.transfers_of(n).await[0];
        assert_eq!(
            first.json(),
            json!({ "transfer": transfer["transfer"], "reference": transfer["reference"], "amount": n })
        );
        assert!(pay(&worker, &path(policy), policy, n).await.is_replay_of(&first));
        assert_eq!(payouts.counts(n).await, (1, 1));
        let call = &payouts.bank.calls_of(n).await[0];
        let key = if policy == "retry" { transfer["reference"].clone() } else { json!(null) };
        assert_eq!(call["key"], key, "{policy}");
    }
}

#[tokio::test]
async fn a_refusal_is_402_with_the_banks_body_and_recorded() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["refuse"]).await;
    let first = pay(&worker, "/payout", "k", 7).await;
    assert_eq!(first.status, 402, "{first:?}");
    assert_eq!(first.json()["refused"], payouts.bank.calls_of(7).await[0]["reference"]);
    assert!(pay(&worker, "/payout", "k", 7).await.is_replay_of(&first));
    assert_eq!((payouts.counts(7).await, &step(&worker, "k").await["state"]), ((0, 1), &json!("failed")));
}

#[tokio::test]
async fn an_unknown_outcome_is_said_to_be_so_and_a_retry_asks_again() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["commit-then-502"]).await;
    for _ in 0..3 {
        let reply = pay(&worker, "/payout?policy=hold", "k", 7).await;
        is_unknown(&reply);
        assert_eq!((&reply.json()["step"], reply.is_replayed()), (&json!("transfer"), false));
    }
    assert_eq!(payouts.counts(7).await, (1, 1));
    payouts.bank.plan(8, &["commit-then-502"]).await;
    is_unknown(&pay(&worker, "/payout?policy=reconcile", "r", 8).await);
    assert_eq!(pay_until_decided(&worker, "/payout?policy=reconcile", "r", 8).await.status, 200);
    assert_eq!(payouts.counts(8).await, (1, 1));
    assert_eq!(inspect(&worker, "r").await["resolution"]["who"], "reconcile hook of bank");
}

#[tokio::test]
async fn every_store_keeps_its_steps() {
    let payouts = Payouts::new(rig!()).await;
    let maria = idempotency_testbed::servers::MariaDb::start();
    let postgres = idempotency_testbed::servers::Postgres::start();
    let redis = idempotency_testbed::servers::Redis::start();
    let (maria, postgres) = (maria.create_database("store"), postgres.create_database("store"));
    let stores = ["memory:".to_owned(), maria, postgres, redis.url()];
    for (n, store) in (1..).zip(stores) {
        let bank = payouts.bank.url();
        let worker = payouts.rig.start(&["--migrate", "--store", &store, "--bank", &bank]).await;
        payouts.bank.plan(n, &["commit-then-reset"]).await;
        assert_eq!(pay_until_decided(&worker, &path("reconcile"), "k", n).await.status, 200, "{store}");
        assert_eq!(payouts.counts(n).await, (1, 1), "{store}");
        assert_eq!(step(&worker, "k").await["state"], "succeeded", "{store}");
    }
}

#[tokio::test]
async fn without_protection_a_duplicate_calls_again() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker_with(&["--unprotected"]).await;
    payouts.bank.plan(7, &["commit-then-502", "commit-then-stall", "refuse"]).await;
    for status in [502, 502, 402, 200] {
        assert_eq!(pay(&worker, "/payout", "k", 7).await.status, status);
    }
    let references = payouts.bank.calls_of(7).await;
    assert!(references.iter().all(|call| call["reference"] == references[0]["reference"]), "{references:?}");
    assert_eq!(payouts.counts(7).await, (3, 4));
}

#[tokio::test]
async fn what_a_payout_needs_is_asked_for() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let keyless = worker.call(http::Method::POST, "/payout").json(&amount(1)).reply().await;
    assert_eq!((keyless.status.as_u16(), keyless.problem().as_deref()), (400, Some("idempotency-key-missing")));
    assert_eq!(pay(&worker, "/payout?policy=guess", "k", 1).await.status, 400);
    assert_eq!(payouts.bank.calls().await.len(), 0);
    let without_bank = payouts.rig.start(&[]).await;
    let told = pay(&without_bank, "/payout", "k", 1).await;
    assert_eq!((told.status.as_u16(), told.problem().as_deref()), (501, Some("not-implemented")));
    assert!(told.text().contains("--bank"), "{told:?}");
    for wrong in ["bank", "https://127.0.0.1:1", "http://"] {
        let ended = payouts.rig.run(&["--bank", wrong]).await;
        assert_eq!((ended.status.code(), ended.stderr.trim_end().lines().count()), (Some(2), 1), "{}", ended.stderr);
    }
}

/// Whatever the layer was told about an outage: a call that is not on record is not made.
#[tokio::test]
async fn without_its_store_nothing_is_paid_even_where_other_routes_go_on() {
    let payouts = Payouts::new(rig!()).await;
    let mut redis = idempotency_testbed::servers::Redis::start();
    let bank = payouts.bank.url();
    let options = ["--store", &redis.url(), "--bank", &bank, "--on-store-error", "pass", "--store-timeout", "300ms"];
    let worker = payouts.rig.start(&options).await;
    redis.stop();
    assert_eq!(pay(&worker, "/charge", "k", 7).await.status, 201);
    for policy in ["hold", "reconcile", "retry"] {
        let told = pay(&worker, &path(policy), policy, 7).await;
        assert_eq!((told.status.as_u16(), told.problem().as_deref()), (503, Some("store-unavailable")), "{told:?}");
    }
    assert_eq!(payouts.counts(7).await, (0, 0));
}

#[tokio::test]
async fn a_bank_that_is_not_there_was_certainly_not_called() {
    let mut payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let address = payouts.bank.url().trim_start_matches("http://").to_owned();
    payouts.bank.kill();
    for policy in ["hold", "reconcile", "retry"] {
        let told = pay(&worker, &path(policy), policy, 7).await;
        assert_eq!((told.status.as_u16(), told.problem().as_deref()), (503, Some("upstream-unavailable")), "{told:?}");
        assert!(told.retry_after().is_some());
        assert_eq!(step(&worker, policy).await["state"], "failed");
    }
    payouts.bank = payouts.rig.start_bank(&["--listen", &address]).await;
    for policy in ["hold", "reconcile", "retry"] {
        assert_eq!(pay(&worker, &path(policy), policy, 7).await.status, 200);
    }
    assert_eq!(payouts.counts(7).await, (3, 3));
    eventually("a new connection", async || payouts.bank.server().get("/faults").await.status == 200).await;
}
