//! Processes whose clocks differ.

use std::time::Duration;

use idempotency_testbed::servers::{MariaDb, Postgres};
use idempotency_testbed::{Testbed, eventually, rig};
use serde_json::json;

use crate::ten;

#[tokio::test]
async fn case_81_a_process_whose_clock_is_ahead_takes_nothing_over_in_postgresql() {
    let server = Postgres::start();
    nothing_is_taken_over(&server.create_database("shop")).await;
}

#[tokio::test]
async fn case_81_a_process_whose_clock_is_ahead_takes_nothing_over_in_mariadb() {
    let server = MariaDb::start();
    nothing_is_taken_over(&server.create_database("shop")).await;
}

/// Every expiry is judged on the store's clock: by their own, a claim and a lease of the others would be over for minutes.
async fn nothing_is_taken_over(url: &str) {
    let rig = rig!();
    let options = ["--migrate", "--store", url, "--ledger", url, "--lease", "2s", "--recovery", "rerun"];
    let one = rig.start_alone(&options).await;
    let ahead = rig.start_ahead(180, &options).await;

    let running = begin(&one, "/charge?before=3000", "k").await;
    let duplicate = ahead.post("/charge?before=3000", "k", &ten()).await;
    assert!(duplicate.is_in_flight(), "{duplicate:?}");
    assert!(duplicate.retry_after().is_some_and(|seconds| seconds <= 3), "{duplicate:?}");
    assert_eq!(running.await.expect("no panic").status, 201);
    assert_eq!(ahead.effects("k").await, 1);

    let holding = begin(&one, "/counter/a?think=3500", "first").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let refused = ahead.post("/counter/a", "second", &json!({ "amount": 1 })).await;
    assert_eq!(refused.problem().as_deref(), Some("lease-held"), "{refused:?}");
    assert_eq!(holding.await.expect("no panic").status, 200);

    // Nor do tokens jump to and fro with whoever asks for them.
    let mut last = 0;
    for (n, testbed) in [&one, &ahead, &one, &ahead].into_iter().enumerate() {
        let added = testbed.post("/counter/a", &format!("in-turn-{n}"), &json!({ "amount": 1 })).await;
        let token = added.json()["token"].as_u64().expect("a token");
        assert!(token > last && (last == 0 || token - last < 60_000_000), "{token} after {last}");
        last = token;
    }
}

/// Posts, and waits until the key is claimed.
async fn begin(testbed: &Testbed, path: &str, key: &str) -> tokio::task::JoinHandle<idempotency_testbed::Reply> {
    let (client, call) = (testbed.client().clone(), (path.to_owned(), key.to_owned()));
    let posted = tokio::spawn(async move { client.post(&call.0, &call.1, &ten()).await });
    eventually("it runs", async || !testbed.records(&format!("?key={key}")).await.is_empty()).await;
    posted
}
