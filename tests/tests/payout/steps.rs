//! What an operator sees of steps, and does about those whose outcome is unknown.

use idempotency_testbed::{Testbed, rig};
use serde_json::{Value, json};

use crate::{Payouts, did_not_happen, ends, inspect, is_unknown, pay, resolve, step, step_path};

/// Leaves a step whose outcome is unknown under this key: the bank made the transfer.
async fn doubt(payouts: &Payouts, worker: &Testbed, key: &str, of: i64) -> Value {
    payouts.bank.plan(of, &["commit-then-502"]).await;
    is_unknown(&pay(worker, "/payout", key, of).await);
    step(worker, key).await
}

#[tokio::test]
async fn steps_are_listed_by_state_and_key() {
    let payouts = Payouts::new(rig!()).await;
    let sqlite = payouts.worker().await;
    let memory = payouts.rig.start(&["--bank", &payouts.bank.url()]).await;
    for (n, worker) in (0..).zip([sqlite, memory]) {
        assert_eq!(worker.steps("").await, Vec::<Value>::new());
        pay(&worker, "/payout", "secret-key", 100 + n).await;
        doubt(&payouts, &worker, "doubtful", 200 + n).await;
        let steps = worker.steps("").await;
        assert_eq!(steps.len(), 2, "{steps:?}");
        for step in &steps {
            assert_eq!(step.as_object().unwrap().len(), 7, "{step}");
            assert_eq!(step["id"].as_str().map(str::len), Some(64));
            assert_eq!(
                (&step["label"], &step["call"], &step["resolution"]),
                (&json!("transfer"), &json!(1), &Value::Null)
            );
            assert!(step["token"].as_u64().is_some_and(|token| token < 1 << 53), "{step}");
            assert!(step["age_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{step}");
        }
        let page = worker.get("/steps").await.text();
        assert!(!page.contains("secret-key") && !page.contains("amount"), "{page}");
        for (state, number) in [("unknown", 1), ("succeeded", 1), ("calling", 0), ("failed", 0), ("retryable", 0)] {
            assert_eq!(worker.steps(&format!("?state={state}")).await.len(), number, "{state}");
        }
        assert_eq!(worker.steps("?key=doubtful&state=unknown").await.len(), 1);
        assert_eq!(worker.steps("?key=doubtful&state=succeeded").await.len(), 0);
        assert_eq!(worker.steps("?key=nobody").await.len(), 0);
        for wrong in ["?state=lost", "?key="] {
            assert_eq!(worker.get(&format!("/steps{wrong}")).await.status, 400, "{wrong}");
        }
    }
}

#[tokio::test]
async fn a_step_is_inspected_with_its_calls_and_results() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let paid = pay(&worker, "/payout", "k", 1).await.json();
    let inspected = inspect(&worker, "k").await;
    assert_eq!((&inspected["result"], &inspected["calls"][0]["result"]), (&paid, &paid));
    assert_eq!(ends(&inspected), ["done"]);
    assert_eq!(inspected["calls"][0]["token"], inspected["token"]);
    doubt(&payouts, &worker, "d", 2).await;
    let inspected = inspect(&worker, "d").await;
    assert_eq!((ends(&inspected), &inspected["result"]), (vec!["unknown"], &Value::Null));
    assert!(inspected["calls"][0]["why"].as_str().unwrap().contains("502"), "{inspected}");
    let nobody = "0".repeat(64);
    for (path, status) in [
        (format!("/records/{nobody}/steps/transfer"), 404),
        (step_path(&inspected).replace("transfer", "other"), 404),
        ("/records/xyz/steps/transfer".to_owned(), 400),
        (format!("/records/{nobody}/steps/{}", "x".repeat(65)), 400),
    ] {
        assert_eq!(worker.get(&path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_step_is_resolved_by_what_happened() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let step = doubt(&payouts, &worker, "k", 7).await;
    let finding = json!({
        "call": step["call"], "who": "ann", "why": "seen in the bank's ledger", "happened": true,
        "result": { "transfer": 1, "found": true },
    });
    let resolved = resolve(&worker, &step, &finding).await;
    assert_eq!((resolved.status.as_u16(), &resolved.json()["state"]), (200, &json!("succeeded")), "{resolved:?}");
    let inspected = inspect(&worker, "k").await;
    assert_eq!(inspected["resolution"], json!({ "who": "ann", "why": "seen in the bank's ledger" }));
    let paid = pay(&worker, "/payout", "k", 7).await;
    assert_eq!((paid.status.as_u16(), paid.json()), (200, json!({ "transfer": 1, "found": true })));
    assert_eq!(payouts.counts(7).await, (1, 1));
    let again = resolve(&worker, &step, &finding).await;
    assert_eq!((again.status.as_u16(), again.problem().as_deref()), (409, Some("step-not-unknown")));
}

#[tokio::test]
async fn a_step_that_did_not_happen_is_called_again_and_a_late_resolution_is_refused() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    payouts.bank.plan(7, &["reset", "reset"]).await;
    is_unknown(&pay(&worker, "/payout", "k", 7).await);
    let seen = step(&worker, "k").await;
    let resolved = resolve(&worker, &seen, &did_not_happen(&seen)).await;
    assert_eq!((resolved.status.as_u16(), &resolved.json()["state"]), (200, &json!("retryable")), "{resolved:?}");
    is_unknown(&pay(&worker, "/payout", "k", 7).await);
    assert_eq!(payouts.counts(7).await, (0, 2));
    // Whoever looked at the first call knows nothing of the second.
    let late = resolve(&worker, &seen, &did_not_happen(&seen)).await;
    assert_eq!((late.status.as_u16(), late.problem().as_deref()), (409, Some("step-moved-on")));
    let seen = step(&worker, "k").await;
    assert_eq!((&seen["call"], &seen["state"]), (&json!(2), &json!("unknown")));
    assert!(resolve(&worker, &seen, &did_not_happen(&seen)).await.status.is_success());
    assert_eq!(pay(&worker, "/payout", "k", 7).await.status, 200);
    assert_eq!(payouts.counts(7).await, (1, 3));
    assert_eq!(inspect(&worker, "k").await["resolution"]["who"], "ann");
}

#[tokio::test]
async fn a_resolution_of_something_else_is_refused() {
    let payouts = Payouts::new(rig!()).await;
    let worker = payouts.worker().await;
    let step = doubt(&payouts, &worker, "k", 7).await;
    let finding = did_not_happen(&step);
    let with = |member: &str, value: Value| {
        let mut finding = finding.clone();
        finding[member] = value;
        finding
    };
    let mut elsewhere = step.clone();
    elsewhere["id"] = json!("0".repeat(64));
    let mut other = step.clone();
    other["label"] = json!("other");
    let mut nowhere = step.clone();
    nowhere["id"] = json!("xyz");
    let cases = [
        (&step, with("call", json!(2)), 409),
        (&step, with("call", json!(0)), 409),
        (&elsewhere, finding.clone(), 404),
        (&other, finding.clone(), 404),
        (&nowhere, finding.clone(), 400),
        (&step, with("call", Value::Null), 400),
        (&step, with("call", json!(-1)), 400),
        (&step, with("who", json!("")), 400),
        (&step, with("why", Value::Null), 400),
        (&step, with("happened", json!("yes")), 400),
        (&step, with("happened", json!(true)), 400),
        (&step, with("result", json!(1)), 400),
        (&step, json!("a word"), 400),
    ];
    for (step, finding, status) in cases {
        let refused = resolve(&worker, step, &finding).await;
        assert_eq!(refused.status, status, "{finding}: {refused:?}");
        assert!(refused.problem().is_some());
    }
    assert_eq!(crate::step(&worker, "k").await["state"], "unknown");
    assert_eq!(payouts.counts(7).await, (1, 1));
}
