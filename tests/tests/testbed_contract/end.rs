//! How it ends.

use http::Method;
use idempotency_testbed::{Raw, SendError, eventually, request_bytes, rig};
use serde_json::json;

#[tokio::test]
async fn sigterm_ends_it_well_and_standard_output_has_one_line() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    testbed.post("/charge", "k", &json!({ "amount": 1 })).await;
    let line = format!("listening on {}\n", testbed.url());
    let ended = testbed.terminate().await;
    assert_eq!((ended.status.code(), ended.stdout), (Some(0), line));
}

#[tokio::test]
async fn a_client_that_waits_gets_its_answer() {
    let rig = rig!();
    let mut testbed = rig.start(&[]).await;
    let client = testbed.client().clone();
    let asked = tokio::spawn(async move { client.post("/charge?after=800", "k", &json!({ "amount": 1 })).await });
    eventually("it works", async || testbed.effects("k").await == 1).await;
    testbed.ask_to_end();
    assert_eq!(asked.await.expect("an answer").status, 201);
    assert_eq!(testbed.ended().await.status.code(), Some(0));
}

#[tokio::test]
async fn work_whose_client_has_left_is_drained_and_recorded() {
    let rig = rig!();
    let mut testbed = rig.start_on_sqlite(&[]).await;
    let mut client = Raw::connect(testbed.addr()).await;
    let path = "/charge?before=300&after=900";
    client
        .send(request_bytes("POST", path, &[("idempotency-key", "k"), ("content-type", "application/json")], "{}"))
        .await;
    eventually("it is claimed", async || testbed.records("?state=in-flight").await.len() == 1).await;
    client.reset();
    eventually("it goes on without its client", async || testbed.effects("k").await == 1).await;
    testbed.ask_to_end();
    eventually("it does not listen any more", async || {
        matches!(testbed.call(Method::GET, "/health").send().await, Err(SendError::NoAnswer(_)))
    })
    .await;
    assert!(testbed.is_running(), "it ends before its work: {}", testbed.stderr());
    assert_eq!(testbed.ended().await.status.code(), Some(0));

    let next = rig.start_on_sqlite(&[]).await;
    let duplicate = next.post(path, "k", &json!({})).await;
    assert_eq!((duplicate.status.as_u16(), duplicate.is_replayed()), (201, true), "{duplicate:?}");
    assert_eq!(next.effects("k").await, 1);
}

#[tokio::test]
async fn an_idle_connection_holds_up_nobody() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let mut idle = Raw::connect(testbed.addr()).await;
    let ended = testbed.terminate();
    assert_eq!(ended.await.status.code(), Some(0));
    assert_eq!(idle.read_all().await, b"");
}
