//! Real faults of other systems at external APIs, each under its number in the project's collection. `crashes` has number 93.

use std::collections::BTreeSet;

use idempotency_testbed::rig;
use serde_json::Value;

use crate::{Payouts, ends, inspect, is_unknown, path, pay, pay_until_decided, step};

/// AKASH-3449: the bank committed and did not answer in time; the client comes back with the same key, and with a new one.
#[tokio::test]
async fn case_84_a_slow_success_is_one_transfer_for_each_key_of_the_client() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["commit-then-stall"]).await;
    is_unknown(&pay(&worker, &path("reconcile"), "same", 7).await);
    is_unknown(&pay(&worker, &path("reconcile"), "same", 7).await);
    assert_eq!(payouts.counts(7).await, (1, 1), "unknown until somebody looked");
    let paid = pay_until_decided(&worker, &path("reconcile"), "same", 7).await;
    assert_eq!((paid.status.as_u16(), payouts.counts(7).await), (200, (1, 1)));
    // A new key is a new request: a client that changes it on an unknown outcome pays twice, and nothing here can tell.
    assert_eq!(pay(&worker, &path("reconcile"), "new", 7).await.status, 200);
    let references: BTreeSet<String> =
        payouts.bank.calls_of(7).await.iter().map(|call| call["reference"].to_string()).collect();
    assert_eq!(references.len(), 2);
}

/// STR-PHP-637: the key on retries is the caller's, not a new one.
#[tokio::test]
async fn case_85_every_call_has_the_same_key_also_from_another_process() {
    let payouts = Payouts::new(rig!()).await;
    let mut worker = payouts.worker().await;
    payouts.bank.plan(7, &["commit-then-reset", "reset", "half-a-body"]).await;
    is_unknown(&pay(&worker, &path("retry"), "k", 7).await);
    worker.kill();
    let next = payouts.worker().await;
    assert_eq!(pay_until_decided(&next, &path("retry"), "k", 7).await.status, 200);
    let calls = payouts.bank.calls_of(7).await;
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| call["key"] == calls[0]["reference"] && call["key"].is_string()), "{calls:?}");
    assert_eq!(payouts.counts(7).await, (1, 4));
}

/// STR-RB-598: a key does not stick to the next call, nor to another tenant's.
#[tokio::test]
async fn case_86_every_request_of_every_tenant_has_a_key_of_its_own() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker_with(&["--scope", "header:X-Tenant"]).await;
    for tenant in ["a", "b", "a"] {
        for key in ["k", "l"] {
            let call = worker.call(http::Method::POST, "/payout?policy=retry").key(key).header("x-tenant", tenant);
            assert_eq!(call.json(&crate::amount(7)).reply().await.status, 200);
        }
    }
    let keys: BTreeSet<String> = payouts.bank.calls_of(7).await.iter().map(|call| call["key"].to_string()).collect();
    assert_eq!((keys.len(), payouts.counts(7).await), (4, (4, 4)));
}

/// WOOSQ-106: 429, 500, then 200 with an unchanged body, and then a changed one.
#[tokio::test]
async fn case_88_the_key_stays_while_the_request_does_and_a_changed_one_is_refused() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["too-many", "error"]).await;
    assert_eq!(pay(&worker, &path("retry"), "k", 7).await.status, 200);
    let changed = pay(&worker, &path("retry"), "k", 8).await;
    assert_eq!((changed.status.as_u16(), changed.problem().as_deref()), (422, Some("idempotency-key-reused")));
    let calls = payouts.bank.calls_of(7).await;
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call["key"] == calls[0]["reference"]), "{calls:?}");
    assert_eq!((payouts.counts(7).await, payouts.counts(8).await), ((1, 3), (0, 0)));
    // While it is unknown as well.
    payouts.bank.plan(9, &["reset"]).await;
    is_unknown(&pay(&worker, &path("hold"), "l", 9).await);
    pay(&worker, &path("hold"), "l", 10).await;
    assert_eq!(payouts.counts(10).await, (0, 0));
}

/// SHUNT-128: only a connection that was refused is not sent. The other half is in `route`.
#[tokio::test]
async fn case_89_whatever_may_have_been_sent_is_unknown_and_never_sent_again_by_itself() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let ambiguous = [
        ("stall", 0),
        ("reset", 0),
        ("too-many", 0),
        ("error", 0),
        ("commit-then-stall", 1),
        ("commit-then-reset", 1),
        ("commit-then-502", 1),
        ("half-a-body", 1),
    ];
    for (n, (fault, transfers)) in (1..).zip(ambiguous) {
        payouts.bank.plan(n, &[fault]).await;
        for _ in 0..3 {
            is_unknown(&pay(&worker, &path("hold"), fault, n).await);
        }
        assert_eq!(payouts.counts(n).await, (transfers, 1), "{fault}");
        assert_eq!(ends(&inspect(&worker, fault).await), ["unknown"], "{fault}");
    }
    assert_eq!(worker.steps("?state=unknown").await.len(), ambiguous.len(), "surfaced");
}

/// STRX-711: the first call was slow, the second one is refused, and that is no failure.
#[tokio::test]
async fn case_92_a_refused_repetition_is_no_failure_and_no_answer() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["stall", "refuse", "refuse"]).await;
    is_unknown(&pay(&worker, &path("retry"), "k", 7).await);
    let inspected = inspect(&worker, "k").await;
    assert_eq!((ends(&inspected), &inspected["result"]), (vec!["unknown", "refused", "refused"], &Value::Null));
    assert_eq!(step(&worker, "k").await["state"], "unknown");
    assert_eq!(pay_until_decided(&worker, &path("retry"), "k", 7).await.status, 200);
    assert_eq!(payouts.counts(7).await, (1, 4));
    // Asked whether it happened, and told that it did not, the refusal of the next call is one.
    payouts.bank.plan(8, &["stall", "refuse"]).await;
    assert_eq!(pay_until_decided(&worker, &path("reconcile"), "r", 8).await.status, 402);
    assert_eq!(payouts.counts(8).await, (0, 2));
}
