//! Counters, leases and fences: `/counter/{resource}`, `/fenced/{resource}`; and `/tx-charge`.

use std::time::Duration;

use http::Method;
use idempotency_testbed::{Reply, Testbed, eventually, rig};
use serde_json::{Value, json};

async fn fenced(testbed: &Testbed, resource: &str, token: &str, amount: i64) -> Reply {
    let call = testbed.call(Method::POST, &format!("/fenced/{resource}")).header("fencing-token", token);
    call.json(&json!({ "amount": amount })).reply().await
}

fn outcome(reply: &Reply) -> (u16, Option<String>) {
    (reply.status.as_u16(), reply.problem())
}

fn superseded() -> (u16, Option<String>) {
    (409, Some("fencing-token-superseded".to_owned()))
}

#[tokio::test]
async fn a_counter_counts_under_rising_tokens_and_once_per_key() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    assert_eq!(testbed.get("/counter/a").await.json(), json!({ "value": 0, "token": null }));
    let mut last = 0;
    for n in 1..=3 {
        let key = format!("k{n}");
        let first = testbed.post("/counter/a", &key, &json!({ "amount": 5 })).await;
        let token = first.json()["token"].as_u64().expect("a token");
        assert_eq!(first.json(), json!({ "value": 5 * n, "token": token }));
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(testbed.post("/counter/a", &key, &json!({ "amount": 5 })).await.is_replay_of(&first));
    }
    assert_eq!(testbed.get("/counter/a").await.json(), json!({ "value": 15, "token": last }));
    assert_eq!(testbed.get("/counter/A").await.json()["value"], 0, "another resource");
    let rows = testbed.effect_rows("?key=k2").await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["route"], &rows[0]["resource"]), (&json!("/counter/{resource}"), &json!("a")));
}

#[tokio::test]
async fn a_counter_that_is_full_is_left_as_it_is() {
    for options in [&[][..], &["--unprotected"]] {
        let rig = rig!();
        let testbed = rig.start(options).await;
        assert_eq!(testbed.post("/counter/a", "one", &json!({ "amount": 5 })).await.status, 200);
        let full = testbed.post("/counter/a", "two", &json!({ "amount": i64::MAX })).await;
        assert_eq!(outcome(&full), (400, Some("bad-request".to_owned())), "{full:?}");
        assert_eq!(testbed.get("/counter/a").await.json()["value"], 5);
    }
}

#[tokio::test]
async fn a_lease_that_another_holds_is_waited_for_and_then_refused() {
    let rig = rig!();
    let (one, two) = (rig.start_on_sqlite(&[]).await, rig.start_on_sqlite(&[]).await);
    let client = one.client().clone();
    let long = tokio::spawn(async move { client.post("/counter/a?think=5000", "long", &json!({ "amount": 1 })).await });
    eventually("the counter is opened", async || {
        two.records("?key=long").await.iter().any(|record| record["state"] == "in-flight")
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let refused = two.post("/counter/a", "short", &json!({ "amount": 1 })).await;
    assert_eq!(outcome(&refused), (409, Some("lease-held".to_owned())), "{refused:?}");
    assert!(refused.retry_after().is_some(), "{refused:?}");
    let other = two.post("/counter/b", "other", &json!({ "amount": 1 })).await;
    assert_eq!(other.status, 200, "another counter has another lease: {other:?}");
    assert_eq!(long.await.expect("no panic").status, 200);
    let now = two.post("/counter/a", "short", &json!({ "amount": 1 })).await;
    assert_eq!((now.status.as_u16(), &now.json()["value"]), (200, &json!(2)), "what was refused is free: {now:?}");
}

#[tokio::test]
async fn older_tokens_are_refused_and_say_which_was_admitted() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let first = fenced(&testbed, "r", "33", 1).await;
    assert_eq!((first.status.as_u16(), first.json()), (200, json!({ "value": 1, "token": 33 })));
    assert_eq!(fenced(&testbed, "r", "34", 1).await.json(), json!({ "value": 2, "token": 34 }));
    // Without a holder a second use of a token cannot be told from a second user.
    for old in ["33", "34", "1"] {
        let refused = fenced(&testbed, "r", old, 100).await;
        assert_eq!(outcome(&refused), superseded(), "{old}: {refused:?}");
        assert_eq!(refused.json()["current_token"], 34, "{refused:?}");
        assert_eq!(refused.retry_after(), None, "asking again does not help");
    }
    assert_eq!(testbed.get("/counter/r").await.json(), json!({ "value": 2, "token": 34 }));
    assert_eq!(testbed.effect_rows("?route=/fenced/%7Bresource%7D").await.len(), 2);
}

#[tokio::test]
async fn a_holder_may_use_its_token_again_and_nobody_else_may() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let (mine, yours) = ("40;holder=:AAAAAAAAAAAAAAAAAAAAAQ==:", "40;holder=:AAAAAAAAAAAAAAAAAAAAAg==:");
    for value in [1, 2] {
        assert_eq!(fenced(&testbed, "r", mine, 1).await.json()["value"], value);
    }
    assert_eq!(outcome(&fenced(&testbed, "r", yours, 1).await), superseded());
    assert_eq!(outcome(&fenced(&testbed, "r", "39;holder=:AAAAAAAAAAAAAAAAAAAAAQ==:", 1).await), superseded());
    assert_eq!(testbed.get("/counter/r").await.json()["value"], 2);
}

#[tokio::test]
async fn a_token_is_required_and_is_a_number() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let without = testbed.call(Method::POST, "/fenced/r").json(&json!({ "amount": 1 })).reply().await;
    assert_eq!(outcome(&without), (428, Some("fencing-token-missing".to_owned())));
    for wrong in ["0", "-1", "x", "\"5\"", "9007199254740992", "5, 6", "5;holder=:AA==:", "5;src=x"] {
        let refused = fenced(&testbed, "r", wrong, 1).await;
        assert_eq!(outcome(&refused), (400, Some("fencing-token-invalid".to_owned())), "{wrong}: {refused:?}");
    }
    // Of a clock that is wrong by centuries: it must not shut everybody else out.
    assert_eq!(outcome(&fenced(&testbed, "r", "9007199254740991", 1).await).0, 400);
    assert_eq!(fenced(&testbed, "r", "5", 1).await.status, 200);
    assert_eq!(testbed.all_effects().await, 1);
}

#[tokio::test]
async fn a_retry_of_a_fenced_write_under_its_key_is_a_replay() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let send = async |token: &str| {
        let call = testbed.call(Method::POST, "/fenced/r").key("k").header("fencing-token", token);
        call.json(&json!({ "amount": 3 })).reply().await
    };
    let first = send("50").await;
    assert_eq!(first.json(), json!({ "value": 3, "token": 50 }));
    assert!(send("50").await.is_replay_of(&first));
    assert!(send("51").await.is_replay_of(&first), "a retry may come under a newer token");
    assert_eq!(testbed.effects("k").await, 1);
}

#[tokio::test]
async fn effect_and_outcome_are_in_one_transaction_where_store_and_ledger_are_one_database() {
    let rig = rig!();
    let url = rig.sqlite_store();
    let one = ["--migrate", "--store", url.as_str(), "--ledger", url.as_str()];
    let testbed = rig.start_alone(&one).await;
    let first = testbed.post("/tx-charge", "k", &json!({ "amount": 9 })).await;
    let id = first.json()["id"].clone();
    assert_eq!((first.status.as_u16(), first.json()), (201, json!({ "id": id, "amount": 9 })));
    assert_eq!(first.header("location"), Some(format!("/charges/{id}").as_str()));
    assert!(testbed.post("/tx-charge", "k", &json!({ "amount": 9 })).await.is_replay_of(&first));
    for (switch, status) in [("status_before=503", 503), ("panic=before", 500), ("panic=after", 500)] {
        let path = format!("/tx-charge?{switch}");
        assert_eq!(testbed.post(&path, switch, &json!({ "amount": 1 })).await.status, status, "{switch}");
        let rows = testbed.effect_rows("?route=/tx-charge").await;
        assert_eq!(rows.len(), 1, "what failed is rolled back: {rows:?}");
        let records = testbed.records("?state=released").await;
        assert!(!records.is_empty(), "its key is free again: {records:?}");
    }
    let said = testbed.post("/tx-charge?status=402", "declined", &json!({ "amount": 1 })).await;
    assert_eq!(said.status, 402);
    assert!(testbed.post("/tx-charge?status=402", "declined", &json!({ "amount": 1 })).await.is_replay_of(&said));
    assert_eq!(testbed.effects("declined").await, 1);
}

#[tokio::test]
async fn a_store_elsewhere_has_no_transaction_with_the_ledger() {
    let rig = rig!();
    for testbed in [rig.start(&[]).await, rig.start_on_sqlite(&[]).await] {
        let refused = testbed.post("/tx-charge", "k", &json!({ "amount": 1 })).await;
        assert_eq!(outcome(&refused), (501, Some("not-implemented".to_owned())));
        assert_eq!(refused.json()["detail"].as_str().map(|detail| detail.contains("--ledger")), Some(true));
    }
}

#[tokio::test]
async fn without_protection_tokens_are_not_looked_at() {
    let rig = rig!();
    let testbed = rig.start(&["--unprotected"]).await;
    for (token, value) in [("34", 1), ("33", 2), ("nonsense", 3)] {
        assert_eq!(fenced(&testbed, "r", token, 1).await.json(), json!({ "value": value, "token": Value::Null }));
    }
    testbed.post("/counter/r", "k", &json!({ "amount": 1 })).await;
    testbed.post("/counter/r", "k", &json!({ "amount": 1 })).await;
    assert_eq!(testbed.get("/counter/r").await.json()["value"], 5);
}
