//! The bank keeps its contract.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use idempotency_testbed::{Bank, Reply, eventually, rig};
use serde_json::json;
use tokio::task::JoinSet;

async fn transfer(bank: &Bank, reference: &str, key: Option<&str>) -> Option<Reply> {
    let order = json!({ "reference": reference, "amount": 5 });
    let mut call = bank.server().call(Method::POST, "/transfers").json(&order);
    if let Some(key) = key {
        call = call.key(key);
    }
    call.send().await.ok()
}

async fn look_up(bank: &Bank, reference: &str) -> Reply {
    bank.server().get(&format!("/transfers?reference={reference}")).await
}

#[tokio::test]
async fn every_call_without_a_key_is_a_transfer_and_a_key_is_honoured() {
    let rig = rig!();
    let bank = rig.start_bank(&[]).await;
    for id in 1..=2 {
        let made = transfer(&bank, "a", None).await.unwrap();
        assert_eq!(made.status, StatusCode::CREATED);
        assert_eq!(made.json(), json!({ "transfer": id, "reference": "a", "amount": 5 }));
    }
    for key in ["k", "k", "\"k\""] {
        assert_eq!(transfer(&bank, "b", Some(key)).await.unwrap().json()["transfer"], 3);
    }
    let other = json!({ "reference": "b", "amount": 6 });
    let reused = bank.server().call(Method::POST, "/transfers").key("k").json(&other).reply().await;
    assert_eq!(reused.status, StatusCode::UNPROCESSABLE_ENTITY);
    let ledger = bank.server().get("/ledger").await.json();
    assert_eq!((&ledger["count"], &ledger["references"]), (&json!(3), &json!({ "a": 2, "b": 1 })));
    assert_eq!(bank.calls().await.len(), 6);
    for wrong in ["", "{}", "{\"reference\": \"a\"}", "[]"] {
        let refused = bank.server().call(Method::POST, "/transfers").body(wrong).reply().await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
}

#[tokio::test]
async fn a_transfer_shows_after_its_settle_time_and_an_unknown_one_never() {
    let rig = rig!();
    let bank = rig.start_bank(&[]).await;
    let began = std::time::Instant::now();
    transfer(&bank, "a", None).await;
    eventually("it shows", async || look_up(&bank, "a").await.status == StatusCode::OK).await;
    assert!(began.elapsed().as_millis() >= 500);
    assert_eq!(look_up(&bank, "a").await.json(), json!({ "transfer": 1, "reference": "a", "amount": 5 }));
    assert_eq!(look_up(&bank, "b").await.status, StatusCode::NOT_FOUND);
    assert_eq!(bank.server().get("/transfers").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn each_fault_does_what_it_says_and_is_counted() {
    let rig = rig!();
    let bank = rig.start_bank(&[]).await;
    // The fault, the status that comes, and how many transfers there are in the end.
    let faults = [
        ("none", Some(201), 1),
        ("refuse", Some(402), 0),
        ("stall", None, 0),
        ("commit-then-stall", None, 1),
        ("commit-then-reset", None, 1),
        ("commit-then-502", Some(502), 1),
        ("half-a-body", None, 1),
        ("reset", None, 0),
        ("too-many", Some(429), 0),
        ("error", Some(500), 0),
        ("slow", Some(201), 1),
        ("late", None, 1),
    ];
    let (mut names, mut expected) = (Vec::new(), Vec::new());
    for (name, _, transfers) in faults {
        names.push(name);
        expected.push((name.to_owned(), transfers));
    }
    bank.plan(5, &names).await;
    for (name, status, _) in faults {
        let patience = std::time::Duration::from_secs(2);
        let reply = tokio::time::timeout(patience, transfer(&bank, name, None)).await.ok().flatten();
        assert_eq!(reply.map(|reply| reply.status.as_u16()), status, "{name}");
    }
    eventually("the late one is made", async || look_up(&bank, "late").await.status == StatusCode::OK).await;
    let transfers = bank.transfers().await;
    for (name, count) in expected {
        assert_eq!(transfers.iter().filter(|row| row["reference"] == *name).count(), count, "{name}");
    }
    let counts = bank.faults().await;
    assert_eq!(counts.len(), faults.len() - 1, "what is answered in order is no fault: {counts:?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test]
async fn faults_are_drawn_by_seed_and_the_books_outlive_the_process() {
    let rig = rig!();
    let options = ["--faults", "0.5", "--seed", "3", "--ledger"];
    let mut met = Vec::new();
    for books in ["one.sqlite", "two.sqlite"] {
        let bank = rig.start_bank_at(&[&options[..], &[books]].concat()).await;
        let mut calls = JoinSet::new();
        for n in 0..40 {
            let client = bank.server().client().clone();
            let order = json!({ "reference": format!("r{n}"), "amount": 5 });
            calls.spawn(async move { client.call(Method::POST, "/transfers").json(&order).send().await.is_ok() });
        }
        eventually("all have met theirs", async || bank.calls().await.len() == 40).await;
        let rows = bank.calls().await.into_iter().map(|call| (call["reference"].to_string(), call["fault"].clone()));
        met.push(rows.collect::<BTreeMap<_, _>>());
    }
    assert_eq!(met[0], met[1]);
    let failed = met[0].values().filter(|fault| !fault.is_null()).count();
    assert!((8..32).contains(&failed), "{failed} of 40 failed");
    let again = rig.start_bank_at(&["--ledger", "one.sqlite"]).await;
    assert_eq!(again.calls().await.len(), 40);
    assert_eq!(again.faults().await.values().sum::<u64>(), failed as u64);
}

#[tokio::test]
async fn it_ends_in_order_and_refuses_wrong_options() {
    let rig = rig!();
    let bank = rig.start_bank(&[]).await;
    bank.plan(5, &["stall"]).await;
    let _ = tokio::time::timeout(std::time::Duration::from_millis(200), transfer(&bank, "a", None)).await;
    assert_eq!(bank.terminate().await.status.code(), Some(0));
    for wrong in [&["--faults", "1.5"][..], &["--faults", "-1"], &["--settle", "0s"], &["--seed", "x"]] {
        let ended = rig.run(&[&["bank"], wrong].concat()).await;
        assert_eq!((ended.status.code(), ended.stderr.trim_end().lines().count()), (Some(2), 1), "{}", ended.stderr);
    }
}
