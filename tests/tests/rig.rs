//! The rig does what the other tests rely on.

use std::time::Duration;

use http::Method;
use idempotency_testbed::{Raw, SendError, eventually, request_bytes, rig};
use serde_json::json;
use tokio::time::timeout;

#[tokio::test]
async fn a_paused_testbed_says_nothing_until_it_goes_on() {
    let rig = rig!();
    let mut testbed = rig.start(&[]).await;
    testbed.pause();
    let asked = testbed.client().clone();
    let mut answer = Box::pin(asked.get("/health"));
    assert!(timeout(Duration::from_millis(300), &mut answer).await.is_err(), "it answers while it is paused");
    testbed.resume();
    assert_eq!(answer.await.status, 200);
}

#[tokio::test]
async fn a_killed_testbed_leaves_its_claim_to_the_next_one() {
    let rig = rig!();
    let mut first = rig.start_on_sqlite(&["--lease", "1s"]).await;
    let client = first.client().clone();
    let path = "/charge?after=30000";
    let lost = tokio::spawn(async move { client.call(Method::POST, path).key("k").json(&json!({})).send().await });
    eventually("it works", async || first.effects("k").await == 1).await;
    first.kill();
    assert!(!first.is_running());
    assert!(matches!(lost.await.expect("an end"), Err(SendError::NoAnswer(_))));

    let next = rig.start_on_sqlite(&[]).await;
    assert!(next.post(path, "k", &json!({})).await.status == 409);
    eventually("the lease is over", async || {
        next.post(path, "k", &json!({})).await.problem().as_deref() == Some("outcome-unknown")
    })
    .await;
    assert_eq!(next.effects("k").await, 1);
}

#[tokio::test]
async fn a_raw_connection_sends_exact_bytes() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let request = request_bytes("POST", "/charge", &[("Idempotency-Key", "k"), ("idempotency-key", "k")], "{}");
    let mut raw = Raw::connect(testbed.addr()).await;
    raw.send(&request).await;
    let answer = String::from_utf8(raw.read_all().await).expect("text");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("idempotency-key-invalid"), "{answer}");

    let mut half = Raw::connect(testbed.addr()).await;
    half.send(&request[..request.len() - 1]).await;
    half.close();
    let mut reset = Raw::connect(testbed.addr()).await;
    reset.send(b"POST /charge HTTP/1.1\r\n").await;
    reset.reset();
    assert_eq!(testbed.all_effects().await, 0);
}

#[tokio::test]
async fn testbeds_of_one_rig_share_a_ledger_and_those_of_two_do_not() {
    let (rig, other) = (rig!(), rig!());
    let (one, two, far) = (rig.start(&[]).await, rig.start(&[]).await, other.start(&[]).await);
    one.post("/charge", "k", &json!({})).await;
    assert_eq!((one.effects("k").await, two.effects("k").await, far.effects("k").await), (1, 1, 0));
}

#[tokio::test]
#[should_panic(expected = "the testbed does not start")]
async fn a_testbed_that_does_not_start_fails_the_test() {
    rig!().start(&["--lease", "0s"]).await;
}
