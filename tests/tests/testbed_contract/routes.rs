//! Every route, without switches.

use http::Method;
use idempotency_testbed::{Client, rig};
use serde_json::{Value, json};

#[tokio::test]
async fn a_charge_has_one_effect_and_is_replayed() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for (n, path) in ["/charge", "/required"].into_iter().enumerate() {
        let key = format!("key-{n}");
        let first = testbed.post(path, &key, &json!({ "amount": 7, "order": 1 })).await;
        assert_eq!(first.status, 201, "{first:?}");
        let id = first.json()["id"].as_i64().expect("a number");
        assert_eq!(first.json(), json!({ "id": id, "amount": 7 }));
        assert_eq!(first.header("location"), Some(format!("/charges/{id}").as_str()));
        assert!(
            testbed.post(path, &format!("\"{key}\""), &json!({ "order": 1, "amount": 7 })).await.is_replay_of(&first)
        );
        let other = testbed.post(path, &key, &json!({ "amount": 8, "order": 1 })).await;
        assert_eq!((other.status.as_u16(), other.problem().as_deref()), (422, Some("idempotency-key-reused")));
        assert_eq!(testbed.effects(&key).await, 1);
    }
}

#[tokio::test]
async fn an_effect_is_a_row_in_the_ledger() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    testbed.post("/charge", "\"a, b\"", &json!({ "amount": 7 })).await;
    testbed.call(Method::POST, "/charge").body("").reply().await;
    let page = testbed.get("/effects").await;
    assert_eq!(page.json()["count"], 2);
    let rows = testbed.effect_rows("").await;
    let mut keyed = rows[0].clone();
    let (token, at) = (keyed["token"].take(), keyed["at"].take());
    assert!(token.as_u64().is_some_and(|token| token > 0), "{rows:?}");
    assert!(at.as_u64().is_some_and(|millis| millis > 1_600_000_000_000), "{rows:?}");
    let expected = json!({
        "seq": 1, "key": "a, b", "route": "/charge", "resource": null, "amount": 7, "token": null, "attempt": 1,
        "process": testbed.process_id(), "at": null,
    });
    assert_eq!(keyed, expected);
    assert_eq!((&rows[1]["key"], &rows[1]["token"], &rows[1]["amount"]), (&Value::Null, &Value::Null, &json!(0)));
    assert_eq!(testbed.effect_rows("?key=a,%20b").await.len(), 1);
    assert_eq!(testbed.effect_rows("?route=/charge").await.len(), 2);
    assert_eq!(testbed.effect_rows("?route=/charge&key=nobody").await.len(), 0);
    assert_eq!(testbed.effect_rows("?route=/required").await.len(), 0);
}

#[tokio::test]
async fn a_key_is_optional_on_one_route_and_required_on_the_other() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let without = testbed.call(Method::POST, "/charge").json(&json!({ "amount": 1 })).reply().await;
    assert_eq!(without.status, 201);
    for path in ["/required", "/webhook"] {
        let refused = testbed.call(Method::POST, path).json(&json!({ "amount": 1 })).reply().await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_deref()), (400, Some("idempotency-key-missing")));
    }
    assert_eq!(testbed.all_effects().await, 1);
}

#[tokio::test]
async fn put_delete_and_get_are_not_protected() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for method in [Method::PUT, Method::DELETE, Method::GET] {
        for _ in 0..2 {
            let reply = testbed.call(method.clone(), "/charge").key("k").reply().await;
            assert_eq!((reply.status.as_u16(), &reply.json()["amount"]), (201, &json!(0)));
            assert!(!reply.is_replayed());
        }
    }
    let put = testbed.call(Method::PUT, "/charge").key("k").json(&json!({ "amount": 4 })).reply().await;
    assert_eq!(put.json()["amount"], 4);
    assert_eq!(testbed.effects("k").await, 7);
    assert_eq!(testbed.records("").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_webhook_is_known_by_the_id_in_its_body() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let deliver = || testbed.call(Method::POST, "/webhook").json(&json!({ "id": "evt_9", "amount": 3 })).reply();
    let first = deliver().await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(deliver().await.is_replay_of(&first));
    let rows = testbed.effect_rows("?key=evt_9").await;
    assert_eq!((rows.len(), &rows[0]["route"], &rows[0]["amount"]), (1, &json!("/webhook"), &json!(3)));
}

#[tokio::test]
async fn a_payment_intent_speaks_the_sdks_language() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let form = "application/x-www-form-urlencoded";
    let create = |key: &str, body: &str| {
        let call = testbed.call(Method::POST, "/v1/payment_intents").header("content-type", form);
        call.key(key).body(body.to_owned()).reply()
    };
    let body = "amount=1099&currency=eur&metadata%5Border%5D=1&payment_method_types%5B%5D=card";
    let first = create("k", body).await;
    let expected = json!({
        "id": "pi_1", "object": "payment_intent", "amount": 1099, "currency": "eur", "status": "succeeded",
    });
    assert_eq!((first.status.as_u16(), first.json()), (200, expected));
    assert!(create("k", body).await.is_replay_of(&first));
    assert_eq!(testbed.effects("k").await, 1);

    let reused = create("k", "amount=1&currency=eur").await;
    assert_eq!((reused.status.as_u16(), &reused.json()["error"]["type"]), (422, &json!("idempotency_error")));
    assert_eq!(reused.header("stripe-should-retry"), Some("false"));
    for wrong in ["currency=eur", "amount=1", "amount=much&currency=eur", ""] {
        let refused = create("w", wrong).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["error"]["type"]), (400, &json!("invalid_request_error")));
        assert!(refused.json()["error"]["message"].is_string());
    }
}

#[tokio::test]
async fn bodies_that_are_not_understood_are_refused_and_free_the_key() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for wrong in ["{", "nonsense", "{\"amount\": \"much\"}", "{\"amount\": 1.5}"] {
        let refused = testbed.call(Method::POST, "/charge").key("k").body(wrong).reply().await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_deref()), (400, Some("bad-request")), "{wrong}");
    }
    let upload =
        testbed.call(Method::POST, "/charge").header("content-type", "application/octet-stream").body("nonsense");
    assert_eq!(upload.key("k").reply().await.json()["amount"], 0);
    assert_eq!(testbed.effects("k").await, 1);
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for path in ["/payout", "/tx-charge"] {
        let reply = testbed.post(path, "k", &json!({ "amount": 1 })).await;
        assert_eq!((reply.status.as_u16(), reply.problem().as_deref()), (501, Some("not-implemented")), "{path}");
        assert!(reply.json()["detail"].as_str().is_some_and(|detail| detail.len() > 20));
    }
    assert_eq!(testbed.all_effects().await, 0);
}

#[tokio::test]
async fn both_versions_of_http_are_served_on_one_port() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let http2 = Client::http2(&testbed.url());
    let first = http2.post("/charge", "k", &json!({ "amount": 7 })).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(testbed.post("/charge", "k", &json!({ "amount": 7 })).await.is_replay_of(&first));
    assert_eq!(testbed.effects("k").await, 1);
}

#[tokio::test]
async fn health_and_metrics_are_served() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    for _ in 0..2 {
        testbed.post("/charge", "k", &json!({ "amount": 7 })).await;
    }
    assert_eq!(testbed.get("/health").await.status, 200);
    let metrics = testbed.get("/metrics").await;
    assert!(metrics.header("content-type").is_some_and(|media_type| media_type.starts_with("text/plain")));
    assert!(metrics.text().contains("idempotency_replayed_total 1"), "{}", metrics.text());
}
