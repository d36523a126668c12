//! Several at once.

use std::time::Duration;

use futures_util::future::join_all;
use idempotency_testbed::{eventually, rig};
use tokio::time::sleep;

use crate::{LEASE, ten, until, until_expired};

#[tokio::test]
async fn case_28_losers_of_a_claim_are_conflicts_and_do_not_touch_other_keys() {
    let rig = rig!();
    let testbed = rig.start_on_sqlite(&["--store-timeout", "10s"]).await;
    let body = ten();
    let winner = testbed.post("/charge?after=2000", "hot", &body);
    let losers = async {
        eventually("it runs", async || testbed.effects("hot").await == 1).await;
        let losers = join_all((0..30).map(|_| testbed.post("/charge?after=2000", "hot", &body))).await;
        (losers, testbed.post("/charge", "unrelated", &ten()).await)
    };
    let (winner, (losers, unrelated)) = tokio::join!(winner, losers);
    assert_eq!(winner.status, 201);
    for loser in losers {
        assert!(loser.is_in_flight(), "{loser:?}");
    }
    assert_eq!(unrelated.status, 201);
    assert_eq!(testbed.effects("hot").await, 1);
}

#[tokio::test]
async fn case_29_a_racing_reader_never_takes_a_claim_for_a_response() {
    let rig = rig!();
    let testbed = rig.start(&[]).await;
    let body = ten();
    for round in 0..200 {
        let key = format!("race-{round}");
        let later = async {
            sleep(Duration::from_millis(1)).await;
            testbed.post("/charge?after=5", &key, &body).await
        };
        let (one, two) = tokio::join!(testbed.post("/charge?after=5", &key, &body), later);
        for (reply, other) in [(&one, &two), (&two, &one)] {
            let sound = reply.status == 201 && !reply.is_replayed();
            assert!(sound || reply.is_in_flight() || reply.is_replay_of(other), "{reply:?}");
        }
        assert_eq!(testbed.effects(&key).await, 1);
    }
}

#[tokio::test]
async fn case_34_a_late_owner_cannot_end_a_claim_that_somebody_took_over() {
    let rig = rig!();
    let options = &[LEASE, &["--recovery", "rerun"]].concat();
    let mut one = rig.start_on_sqlite(options).await;
    let two = rig.start_on_sqlite(options).await;
    let (path, body) = ("/charge?after=4000", ten());
    let client = one.client().clone();
    let first = tokio::spawn(async move { client.post(path, "k", &ten()).await });
    eventually("the first runs", async || two.effects("k").await == 1).await;
    one.pause();
    until_expired().await;
    let (newer, third) = tokio::join!(two.post(path, "k", &body), async {
        eventually("the second runs", async || two.effects("k").await == 2).await;
        one.resume();
        // The first one ends within 4 s of its own time and finds that it was superseded.
        let told = first.await.expect("answered");
        assert!(told.is_in_flight() || told.is_replayed(), "its own answer is thrown away: {told:?}");
        two.post(path, "k", &body).await
    });
    assert_eq!(newer.status, 201);
    assert!(third.is_in_flight() || third.is_replay_of(&newer), "{third:?}");
    assert!(two.post(path, "k", &ten()).await.is_replay_of(&newer), "one key has one answer");
}

#[tokio::test]
async fn case_35_a_slow_but_live_attempt_is_not_taken_over() {
    let rig = rig!();
    for (options, told) in [(&[][..], "request-in-flight"), (&["--no-renew"], "outcome-unknown")] {
        let testbed = rig.start_on_sqlite(&[LEASE, options].concat()).await;
        let key = told;
        let (path, body) = ("/charge?after=5000", ten());
        let slow = testbed.post(path, key, &body);
        let duplicate = async {
            eventually("it runs", async || testbed.effects(key).await == 1).await;
            until_expired().await;
            testbed.post(path, key, &ten()).await
        };
        let (slow, duplicate) = tokio::join!(slow, duplicate);
        assert_eq!(duplicate.problem().as_deref(), Some(told));
        assert_eq!(slow.status, 201, "nobody took over, so it may still complete");
        assert!(testbed.post(path, key, &ten()).await.is_replay_of(&slow));
        assert_eq!(testbed.effects(key).await, 1);
    }
}

#[tokio::test]
async fn case_36_a_sweeper_takes_no_live_claim_for_an_orphan() {
    let rig = rig!();
    let options = &["--lease", "3s", "--sweep", "100ms", "--store-timeout", "10s"];
    let (one, two) = (rig.start_on_sqlite(options).await, rig.start_on_sqlite(options).await);
    let keys: Vec<String> = (0..50).map(|n| format!("long-{n}")).collect();
    let path = "/charge?after=6000";
    let body = ten();
    let long = join_all(keys.iter().map(|key| one.post(path, key, &body)));
    let duplicates = async {
        eventually("all run", async || one.all_effects().await == 50).await;
        for _ in 0..3 {
            for reply in join_all(keys.iter().map(|key| two.post(path, key, &body))).await {
                assert!(reply.is_in_flight(), "{reply:?}");
            }
            sleep(Duration::from_millis(500)).await;
        }
    };
    let (long, ()) = tokio::join!(long, duplicates);
    assert!(long.iter().all(|reply| reply.status == 201));
    assert_eq!(one.all_effects().await, 50);
}

#[tokio::test]
async fn case_101_one_webhook_delivered_three_times_at_once_has_one_effect() {
    let rig = rig!();
    let testbed = rig.start_on_sqlite(&["--response-window", "2s"]).await;
    let event = serde_json::json!({ "id": "evt_9", "amount": 5 });
    let deliver = || async { testbed.call(http::Method::POST, "/webhook").json(&event).reply().await };
    for reply in join_all((0..3).map(|_| deliver())).await {
        assert!(reply.status == 200 || reply.is_in_flight(), "{reply:?}");
    }
    assert_eq!(testbed.effects("evt_9").await, 1);
    assert!(deliver().await.is_replayed());
    // Its answer is no longer kept: still 200, so that the sender stops.
    until(&testbed, "evt_9", "tombstone").await;
    let late = deliver().await;
    assert_eq!((late.status.as_u16(), late.body.len()), (200, 0));
    assert!(late.is_replayed());
    assert_eq!(testbed.effects("evt_9").await, 1);
}
