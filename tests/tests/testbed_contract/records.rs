//! What an operator sees and does.

use http::Method;
use idempotency_testbed::{Reply, Testbed, rig};
use serde_json::{Value, json};

/// Leaves a record in doubt under this key, and says what is listed of it.
async fn doubt(testbed: &Testbed, key: &str) -> Value {
    testbed.post("/charge?panic=after", key, &json!({ "amount": 1 })).await;
    let records = testbed.records(&format!("?key={key}")).await;
    assert_eq!((records.len(), &records[0]["state"]), (1, &json!("in-doubt")));
    records[0].clone()
}

async fn resolve(testbed: &Testbed, id: &Value, finding: &Value) -> Reply {
    let id = id.as_str().expect("an id");
    testbed.call(Method::POST, &format!("/records/{id}/resolve")).json(finding).reply().await
}

#[tokio::test]
async fn records_are_listed_without_keys_and_bodies() {
    let rig = rig!();
    for testbed in [rig.start(&[]).await, rig.start_on_sqlite(&[]).await] {
        assert_eq!(testbed.records("").await, Vec::<Value>::new());
        testbed.post("/charge", "secret-key", &json!({ "amount": 1 })).await;
        testbed.post("/charge?status=422", "freed", &json!({ "amount": 1 })).await;
        let doubtful = doubt(&testbed, "doubtful").await;
        let page = testbed.get("/records").await;
        assert!(!page.text().contains("secret-key") && !page.text().contains("amount"), "{}", page.text());
        let records = testbed.records("").await;
        assert_eq!(records.len(), 3);
        for record in &records {
            assert_eq!(record.as_object().expect("an object").len(), 5, "{record}");
            assert_eq!(record["id"].as_str().map(str::len), Some(64));
            assert!(record["token"].as_u64().is_some_and(|token| token < 1 << 53), "{record}");
            assert_eq!(record["attempt"], 1);
            assert!(record["age_ms"].as_u64().is_some_and(|millis| millis < 60_000), "{record}");
        }
        assert_eq!(testbed.records("?state=in-doubt").await[0]["id"], doubtful["id"]);
        for (state, number) in [("completed", 1), ("released", 1), ("in-doubt", 1), ("in-flight", 0), ("tombstone", 0)]
        {
            assert_eq!(testbed.records(&format!("?state={state}")).await.len(), number, "{state}");
        }
        assert_eq!(testbed.records("?key=nobody").await.len(), 0);
        assert_eq!(testbed.records("?key=freed&state=completed").await.len(), 0);
        for wrong in ["?state=lost", "?key="] {
            assert_eq!(testbed.get(&format!("/records{wrong}")).await.status, 400, "{wrong}");
        }
    }
}

#[tokio::test]
async fn more_records_than_a_page_are_listed() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for n in 0..1100 {
        testbed.post("/charge?status_before=402", &format!("k{n}"), &json!({})).await;
    }
    assert_eq!(testbed.records("").await.len(), 1100);
}

#[tokio::test]
async fn a_doubt_is_resolved_by_what_happened() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let record = doubt(&testbed, "k").await;
    let finding = json!({
        "token": record["token"], "who": "ann", "why": "seen in the ledger", "happened": true, "status": 201,
        "body": { "id": 1, "found": true },
    });
    let resolved = resolve(&testbed, &record["id"], &finding).await;
    assert_eq!((resolved.status.as_u16(), &resolved.json()["state"]), (200, &json!("completed")), "{resolved:?}");
    let duplicate = testbed.post("/charge?panic=after", "k", &json!({ "amount": 1 })).await;
    assert_eq!((duplicate.status.as_u16(), duplicate.json()), (201, json!({ "id": 1, "found": true })));
    assert!(duplicate.is_replayed());
    assert_eq!(duplicate.header("content-type"), Some("application/json"));
    assert_eq!(testbed.effects("k").await, 1);

    let again = resolve(&testbed, &record["id"], &finding).await;
    assert_eq!(again.status, 409, "it is not in doubt any more");
}

#[tokio::test]
async fn a_doubt_is_resolved_by_what_did_not_happen() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let record = doubt(&testbed, "k").await;
    let finding = json!({ "token": record["token"], "who": "ann", "why": "not in the ledger", "happened": false });
    let resolved = resolve(&testbed, &record["id"], &finding).await;
    assert_eq!((resolved.status.as_u16(), &resolved.json()["state"]), (200, &json!("released")), "{resolved:?}");
    testbed.post("/charge", "k", &json!({ "amount": 1 })).await;
    assert_eq!(testbed.effects("k").await, 2, "it runs again");
}

#[tokio::test]
async fn a_resolution_of_something_else_is_refused() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let record = doubt(&testbed, "k").await;
    let finding = json!({ "token": record["token"], "who": "ann", "why": "seen", "happened": true });
    let with = |member: &str, value: Value| {
        let mut finding = finding.clone();
        finding[member] = value;
        finding
    };
    let token = record["token"].as_u64().expect("a token");
    let nobodys = json!("0".repeat(64));
    let cases = [
        (&record["id"], with("token", json!(token - 1)), 409),
        (&nobodys, finding.clone(), 404),
        (&json!("xyz"), finding.clone(), 400),
        (&record["id"], with("token", json!(0)), 400),
        (&record["id"], with("token", Value::Null), 400),
        (&record["id"], with("who", json!("")), 400),
        (&record["id"], with("why", Value::Null), 400),
        (&record["id"], with("happened", json!("yes")), 400),
        (&record["id"], with("status", json!(99)), 400),
        (&record["id"], json!("a word"), 400),
    ];
    for (id, finding, status) in cases {
        let refused = resolve(&testbed, id, &finding).await;
        assert_eq!(refused.status, status, "{finding}: {refused:?}");
        assert!(refused.problem().is_some());
    }
    assert_eq!(testbed.records("?key=k").await[0]["state"], "in-doubt");
}
