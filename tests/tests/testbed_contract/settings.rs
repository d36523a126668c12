//! What each option changes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use idempotency_testbed::{Testbed, eventually, rig};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use uuid::{NoContext, Timestamp, Uuid};

/// How a duplicate is told, and how often it ran, while the first is at work for much longer than its lease.
async fn past_the_lease(options: &[&str]) -> (Option<String>, u64) {
    let rig = rig!();
    let testbed = rig.start(&[&["--lease", "1s"], options].concat()).await;
    let body = json!({ "amount": 1 });
    let path = "/charge?after=3500";
    let first = testbed.post(path, "k", &body);
    let watch = async {
        eventually("it works", async || testbed.effects("k").await == 1).await;
        tokio::time::sleep(Duration::from_millis(2300)).await;
        testbed.post(path, "k", &body).await.problem()
    };
    let (_, told) = tokio::join!(first, watch);
    (told, testbed.effects("k").await)
}

#[tokio::test]
async fn a_lease_is_renewed_unless_switched_off_or_max_run_is_over() {
    let unknown = Some("outcome-unknown".to_owned());
    let (renewed, never, limited) =
        tokio::join!(past_the_lease(&[]), past_the_lease(&["--no-renew"]), past_the_lease(&["--max-run", "400ms"]),);
    assert_eq!(renewed, (Some("request-in-flight".to_owned()), 1));
    assert_eq!(never, (unknown.clone(), 1));
    assert_eq!(limited, (unknown, 1));
}

#[tokio::test]
async fn rerun_runs_again_after_the_lease_and_after_a_failure() {
    let (_, effects) = past_the_lease(&["--no-renew", "--recovery", "rerun"]).await;
    assert_eq!(effects, 2);
    let rig = rig!();
    let testbed = rig.start(&["--recovery", "rerun"]).await;
    for n in 1..=2 {
        assert_eq!(testbed.post("/charge?status=500", "k", &json!({})).await.status, 500);
        assert_eq!(testbed.effects("k").await, n);
    }
}

#[tokio::test]
async fn a_duplicate_waits_when_told_to() {
    let rig = rig!();
    let testbed = rig.start(&["--in-flight", "wait:5s"]).await;
    let post = || async { testbed.post("/charge?before=500", "k", &json!({ "amount": 1 })).await };
    let (one, two) = tokio::join!(post(), post());
    assert!(one.is_replay_of(&two) || two.is_replay_of(&one), "{one:?} {two:?}");
}

#[tokio::test]
async fn a_record_policy_decides_what_is_kept() {
    for (policy, kept) in [("default", [true, false, true]), ("stripe", [true; 3]), ("success-only", [false; 3])] {
        let rig = rig!();
        let testbed = rig.start(&["--record", policy]).await;
        for (status, kept) in [402, 422, 500].into_iter().zip(kept) {
            let post =
                || async { testbed.post(&format!("/charge?status={status}"), &status.to_string(), &json!({})).await };
            let (first, again) = (post().await, post().await);
            assert_eq!(again.is_replay_of(&first), kept, "{status} under {policy}: {again:?}");
        }
    }
}

#[tokio::test]
async fn two_scopes_share_no_key() {
    let rig = rig!();
    let testbed = rig.start(&["--scope", "header:x-tenant"]).await;
    for tenant in ["a", "b"] {
        let call =
            testbed.call(Method::POST, "/charge").header("x-tenant", tenant).key("k").json(&json!({ "of": tenant }));
        assert_eq!(call.reply().await.status, 201, "{tenant}");
        let records = testbed.call(Method::GET, "/records?key=k").header("x-tenant", tenant).reply().await;
        assert_eq!(records.json()["records"].as_array().map(Vec::len), Some(1), "{tenant}");
    }
    assert_eq!(testbed.effects("k").await, 2);
    let nobody = testbed.post("/charge", "k", &json!({})).await;
    assert_eq!((nobody.status.as_u16(), nobody.problem().as_deref()), (400, Some("idempotency-scope-missing")));
    assert_eq!(testbed.get("/records?key=k").await.status, 400);
    let others = testbed.call(Method::GET, "/records?key=k").header("x-tenant", "c").reply().await;
    assert_eq!(others.json()["records"], json!([]));
}

#[tokio::test]
async fn time_ordered_keys_are_taken_in_their_time_only() {
    let rig = rig!();
    let testbed = rig.start_on_sqlite(&["--keys", "uuid7:60s,30s"]).await;
    let charge = async |key: &str| {
        let reply = testbed.post("/charge", key, &json!({ "amount": 1 })).await;
        (reply.status.as_u16(), reply.problem())
    };
    let invalid = (400, Some("idempotency-key-invalid".to_owned()));
    assert_eq!(charge(&made(0)).await, (201, None));
    assert_eq!(charge(&made(-50)).await, (201, None));
    assert_eq!(charge(&made(-70)).await, (410, Some("key-expired".to_owned())));
    assert_eq!(charge(&made(20)).await, (201, None));
    assert_eq!(charge(&made(40)).await, invalid);
    assert_eq!(charge("opaque").await, invalid);
    assert_eq!(testbed.all_effects().await, 3);
}

/// Its records are gone after a restart, and no key of before runs again.
#[tokio::test]
async fn time_ordered_keys_run_once_in_memory_too() {
    let rig = rig!();
    let options = ["--keys", "uuid7:60s,30s"];
    let key = made(0);
    let mut testbed = rig.start(&options).await;
    assert_eq!(testbed.post("/charge", &key, &json!({ "amount": 1 })).await.status, 201, "at once");
    testbed.kill();

    let testbed = rig.start(&options).await;
    let again = testbed.post("/charge", &key, &json!({ "amount": 1 })).await;
    assert_eq!((again.status.as_u16(), again.problem().as_deref()), (410, Some("key-expired")));
    assert_eq!(testbed.effects(&key).await, 1);
    eventually("keys are taken again", async || {
        testbed.post("/charge", &made(0), &json!({ "amount": 1 })).await.status == 201
    })
    .await;
}

/// A key made so many seconds from now.
fn made(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    Uuid::new_v7(Timestamp::from_unix(NoContext, now.saturating_add_signed(seconds), 0)).to_string()
}

#[tokio::test]
async fn windows_end() {
    let rig = rig!();
    let testbed = rig.start(&["--response-window", "1500ms", "--tombstone-window", "5s", "--sweep", "100ms"]).await;
    let post = || async { testbed.post("/charge", "k", &json!({ "amount": 1 })).await };
    let first = post().await;
    assert!(post().await.is_replay_of(&first));
    eventually("the answer is no longer kept", async || {
        let reply = post().await;
        reply.status == 410 && reply.problem().as_deref() == Some("response-not-kept")
    })
    .await;
    assert_eq!((testbed.effects("k").await, &testbed.records("?key=k").await[0]["state"]), (1, &json!("tombstone")));
    eventually("the key is forgotten", async || post().await.status == 201).await;
    assert_eq!(testbed.effects("k").await, 2);
}

#[tokio::test]
async fn sizes_and_numbers_are_limited() {
    let rig = rig!();
    let testbed = rig.start(&["--max-request", "100", "--max-response", "200", "--max-records", "2"]).await;
    let long = testbed.post("/charge", "long", &json!({ "pad": "x".repeat(100) })).await;
    assert_eq!((long.status.as_u16(), long.problem().as_deref()), (413, Some("request-too-large")));
    for (size, key, kept) in [(200, "just", true), (201, "more", false)] {
        let post = || async { testbed.post(&format!("/charge?size={size}"), key, &json!({})).await };
        let first = post().await;
        assert_eq!(first.body.len(), size);
        let told = if kept { None } else { Some("response-not-kept") };
        eventually("it is on record", async || post().await.problem().as_deref() == told).await;
    }
    let full = testbed.post("/charge", "third", &json!({})).await;
    assert_eq!((full.status.as_u16(), full.problem().as_deref()), (503, Some("store-full")));
    assert!(full.retry_after().is_some());
    assert_eq!(testbed.all_effects().await, 2);
}

#[tokio::test]
async fn a_long_request_body_reaches_the_handler_when_allowed() {
    let rig = rig!();
    let testbed = rig.start(&["--max-request", "5000000"]).await;
    let reply = testbed.post("/charge", "long", &json!({ "amount": 1, "pad": "x".repeat(4_000_000) })).await;
    assert_eq!(reply.status, 201, "{reply:?}");
}

#[tokio::test]
async fn unprotected_runs_every_duplicate() {
    let rig = rig!();
    let testbed = rig.start(&["--unprotected"]).await;
    for path in ["/charge", "/required", "/webhook", "/v1/payment_intents"] {
        let body = if path.starts_with("/v1") { "amount=1&currency=eur" } else { "{\"id\":\"k\",\"amount\":1}" };
        for _ in 0..2 {
            let reply = testbed.call(Method::POST, path).key("\"k\"").body(body).reply().await;
            assert!(reply.status.is_success() && !reply.is_replayed(), "{path}: {reply:?}");
        }
        assert_eq!(testbed.effect_rows(&format!("?key=k&route={path}")).await.len(), 2, "{path}");
    }
}

/// Holds the write lock of the rig's store, as a stuck process would.
async fn stuck(store: &str) -> SqliteConnection {
    let mut connection = SqliteConnection::connect(store).await.expect("the store's file");
    connection.execute("BEGIN IMMEDIATE").await.expect("the lock");
    connection
}

#[tokio::test]
async fn a_store_that_does_not_answer_refuses_or_lets_pass() {
    for (policy, status, effects) in [("refuse", 503, 0), ("pass", 201, 2)] {
        let rig = rig!();
        let testbed: Testbed = rig.start_on_sqlite(&["--on-store-error", policy, "--store-timeout", "300ms"]).await;
        let stuck = stuck(&rig.sqlite_store()).await;
        for _ in 0..2 {
            let reply = testbed.post("/charge", "k", &json!({ "amount": 1 })).await;
            assert_eq!(reply.status, status, "{policy}: {reply:?}");
            assert_eq!(reply.retry_after().is_some(), policy == "refuse");
            assert_eq!(reply.header("idempotency-unprotected").is_some(), policy == "pass");
        }
        assert_eq!(testbed.effects("k").await, effects, "{policy}");
        drop(stuck);
        eventually("it works again", async || {
            testbed.post("/charge", "k", &json!({ "amount": 1 })).await.status == 201
        })
        .await;
        assert_eq!(testbed.effects("k").await, effects + 1, "{policy}");
    }
}
